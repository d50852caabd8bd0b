/* The core's printf-like log, which Rust cannot define: formats and hands the text on. */
#include <stdarg.h>
#include <stdio.h>

void acm_stand_in_log(int level, const char *text);
int acm_stand_in_log_limit(void);

void acm_write(int level, const char *format, ...)
{
	char text[4096];
	va_list args;

	/* A core that measures formats no line that it does not keep, like ibacm. */
	if (level > acm_stand_in_log_limit())
		return;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	acm_stand_in_log(level, text);
}
