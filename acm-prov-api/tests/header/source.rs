//! Transforms the mirror's source into a form that cbindgen understands and C authors want: macros expanded, the header's
//! own names, without items that only Rust uses.

use std::collections::BTreeMap;
use std::path::Path;

use quote::{ToTokens as _, format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::visit_mut::VisitMut;
use syn::{
    Attribute, Expr, Field, Fields, FieldsNamed, Ident, Item, ItemType, LitStr, Token, Type,
    braced, parenthesized,
};

/// The files of the mirror, in order of dependency.
const FILES: [&str; 8] = [
    "be",
    "verbs",
    "sa",
    "umad",
    "umad_types",
    "umad_sa",
    "umad_sa_mcm",
    "acm",
];
const LAST_FILE: &str = "acm_prov";

/// Types that a provider does not use: messages between the core and its clients, which end in an array without a
/// length.
pub const LEFT_OUT: [&str; 3] = ["acm_resolve_msg", "acm_perf_msg", "acm_ep_query_msg"];

/// Names to keep: the type is the same incomplete type in every header.
const KEPT: &str = "ibv_context";

/// Columns of a comment's text.
const WIDTH: usize = 110;

/// A function of the header and its symbol.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    pub symbol: String,
}

/// The transformed source.
pub struct Source {
    pub text: String,
    pub functions: Vec<Function>,
    /// The header's names of all types.
    pub types: Vec<String>,
    /// Constants that are better read in hexadecimal, by their names in the header.
    pub hexadecimal: Vec<(String, u64)>,
}

/// An invocation of `codes!`.
struct Codes {
    docs: Vec<Attribute>,
    name: Ident,
    repr: Type,
    prefix: String,
    codes: Vec<(Vec<Attribute>, Ident, Expr)>,
}

impl Parse for Codes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let docs = input.call(Attribute::parse_outer)?;
        input.parse::<Token![pub]>()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        let inside;
        parenthesized!(inside in input);
        let repr = inside.parse()?;
        input.parse::<Token![,]>()?;
        let prefix: Ident = input.parse()?;
        assert_eq!(prefix, "prefix");
        let prefix = input.parse::<LitStr>()?.value();
        let body;
        braced!(body in input);
        let mut codes = Vec::new();
        while !body.is_empty() {
            let docs = body.call(Attribute::parse_outer)?;
            let code = body.parse()?;
            body.parse::<Token![=]>()?;
            let value = body.parse()?;
            body.parse::<Token![,]>()?;
            codes.push((docs, code, value));
        }
        Ok(Self {
            docs,
            name,
            repr,
            prefix,
            codes,
        })
    }
}

/// An invocation of `big_endian!`.
struct BigEndian {
    docs: Vec<Attribute>,
    name: Ident,
    host: Type,
}

impl Parse for BigEndian {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let docs = input.call(Attribute::parse_outer)?;
        let name = input.parse()?;
        input.parse::<Token![,]>()?;
        let host = input.parse()?;
        input.parse::<Token![,]>()?;
        input.parse::<LitStr>()?;
        Ok(Self { docs, name, host })
    }
}

/// The name in C of a family of codes.
fn family_name(name: &Ident) -> String {
    match name.to_string().as_str() {
        "AcmOpcode" => "acm_opcode".into(),
        "AcmStatus" => "acm_status".into(),
        "AcmEpType" => "acm_ep_type".into(),
        "AcmCounter" => "acm_counter".into(),
        other => other.to_owned(),
    }
}

/// Returns the header's name for a mirror's name: its own prefix instead of `acm_`.
pub fn own_name(name: &str) -> String {
    if name == KEPT {
        return name.to_owned();
    }
    if let Some(bits) = name.strip_prefix("Be") {
        return format!("acmabi_be{bits}");
    }
    let is_constant = !name.contains(char::is_lowercase);
    if is_constant {
        format!("ACMABI_{}", name.strip_prefix("ACM_").unwrap_or(name))
    } else {
        let name = name.strip_prefix("acm_").unwrap_or(name);
        format!("acmabi_{}", name.trim_start_matches('_'))
    }
}

/// Reads the mirror in `folder`.
pub fn read(folder: &Path) -> Source {
    let mut items = Vec::new();
    for file in FILES.iter().chain([&LAST_FILE]) {
        let path = folder.join(format!("{file}.rs"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let file =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        file.items
            .into_iter()
            .for_each(|item| take(item, &mut items));
    }
    let mut names = BTreeMap::new();
    let mut source = Source {
        text: String::new(),
        functions: Vec::new(),
        types: Vec::new(),
        hexadecimal: Vec::new(),
    };
    for item in &items {
        let name = match item {
            Item::Struct(item) => &item.ident,
            Item::Union(item) => &item.ident,
            Item::Const(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::ForeignMod(block) => match &block.items[0] {
                syn::ForeignItem::Fn(function) => &function.sig.ident,
                other => panic!("{}: not a function", other.to_token_stream()),
            },
            other => panic!("{}: not for C", other.to_token_stream()),
        };
        let (mirror, own) = (name.to_string(), own_name(&name.to_string()));
        match item {
            Item::Const(item) => {
                source
                    .hexadecimal
                    .extend(hexadecimal(&item.expr).map(|value| (own.clone(), value)));
            }
            Item::ForeignMod(_) => source.functions.push(Function {
                name: own.clone(),
                symbol: mirror.clone(),
            }),
            _ => source.types.push(own.clone()),
        }
        names.insert(mirror, own);
    }
    for family in ["AcmOpcode", "AcmStatus", "AcmEpType", "AcmCounter"] {
        let own = own_name(&family_name(&format_ident!("{family}")));
        names.insert(family.to_owned(), own);
    }
    for mut item in items {
        Rename(&names).visit_item_mut(&mut item);
        source.text += &item.to_token_stream().to_string();
        source.text.push('\n');
    }
    source
}

/// Adds the part of an item that goes into the header.
fn take(item: Item, items: &mut Vec<Item>) {
    match item {
        Item::Macro(item) if item.mac.path.is_ident("codes") => {
            let codes: Codes = item.mac.parse_body().expect("an invocation of codes!");
            let Codes {
                docs, repr, prefix, ..
            } = codes;
            let family = format_ident!("{}", family_name(&codes.name));
            items.push(syn::parse_quote! { #(#docs)* pub type #family = #repr; });
            for (docs, code, value) in codes.codes {
                let name = format_ident!("{prefix}{code}");
                items.push(syn::parse_quote! { #(#docs)* pub const #name: #repr = #value; });
            }
        }
        Item::Macro(item) if item.mac.path.is_ident("big_endian") => {
            let BigEndian { docs, name, host } =
                item.mac.parse_body().expect("an invocation of big_endian!");
            items.push(syn::parse_quote! { #(#docs)* pub type #name = #host; });
        }
        // Codes that acm.h does not name.
        Item::Impl(block) if block.trait_.is_none() => {
            let Type::Path(of) = &*block.self_ty else {
                return;
            };
            if !of.path.is_ident("AcmEpType") {
                return;
            }
            for item in block.items {
                let syn::ImplItem::Const(constant) = item else {
                    continue;
                };
                let Expr::Call(call) = &constant.expr else {
                    panic!("AcmEpType::{}: a newtype around a number", constant.ident);
                };
                let (docs, value) = (&constant.attrs, &call.args[0]);
                let name = format_ident!("ACM_EP_INFO_{}", constant.ident);
                items.push(syn::parse_quote! { #(#docs)* pub const #name: u16 = #value; });
            }
        }
        Item::Struct(mut item) => {
            if LEFT_OUT.contains(&item.ident.to_string().as_str()) {
                return;
            }
            if let Fields::Named(fields) = &mut item.fields {
                drop_arrays_without_length(fields);
            }
            item.attrs.retain(is_for_c);
            if item.ident == KEPT {
                // Without a C representation cbindgen takes it for an incomplete type.
                item.attrs
                    .retain(|attribute| !attribute.path().is_ident("repr"));
            }
            items.push(Item::Struct(item));
        }
        Item::Union(mut item) => {
            drop_arrays_without_length(&mut item.fields);
            item.attrs.retain(is_for_c);
            items.push(Item::Union(item));
        }
        Item::Const(mut item) => {
            if let Some(value) = hexadecimal(&item.expr) {
                let literal = format!("{value:#x}")
                    .parse::<proc_macro2::Literal>()
                    .expect("a number");
                *item.expr = syn::parse_quote! { #literal };
            }
            items.push(Item::Const(item));
        }
        Item::Type(item) => items.push(function(item)),
        _ => {}
    }
}

fn is_for_c(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc") || attribute.path().is_ident("repr")
}

/// Removes arrays without a length: standard C has none, and they begin at the structure's end.
fn drop_arrays_without_length(fields: &mut FieldsNamed) {
    let kept: Punctuated<Field, Token![,]> = fields
        .named
        .iter()
        .filter(|field| match &field.ty {
            Type::Array(array) => array.len.to_token_stream().to_string() != "0",
            _ => true,
        })
        .cloned()
        .collect();
    fields.named = kept;
}

/// Returns the value of a constant written in hexadecimal or as a shifted bit. (`1 << 31` overflows in C.)
fn hexadecimal(expression: &Expr) -> Option<u64> {
    fn literal(expression: &Expr) -> Option<&syn::LitInt> {
        match expression {
            Expr::Lit(expression) => match &expression.lit {
                syn::Lit::Int(literal) => Some(literal),
                _ => None,
            },
            _ => None,
        }
    }
    match expression {
        Expr::Binary(shift) if matches!(shift.op, syn::BinOp::Shl(_)) => {
            let number = |side: &Expr| literal(side)?.base10_parse::<u64>().ok();
            Some(number(&shift.left)? << number(&shift.right)?)
        }
        _ => literal(expression)
            .filter(|literal| literal.to_string().starts_with("0x"))?
            .base10_parse()
            .ok(),
    }
}

/// Makes a C declaration of the type of a core function.
fn function(item: ItemType) -> Item {
    let Type::BareFn(signature) = &*item.ty else {
        return Item::Type(item);
    };
    let name = item.ident.to_string();
    // A provider's function, which the core gets as an argument.
    if name == "acm_sa_handler_fn" {
        return Item::Type(item);
    }
    let symbol = format_ident!("{}", name.trim_end_matches("_fn"));
    let (docs, inputs, output) = (&item.attrs, signature.inputs.iter(), &signature.output);
    let variadic = signature.variadic.as_ref().map(|_| quote! { ... });
    syn::parse_quote! {
        unsafe extern "C" {
            #(#docs)*
            pub fn #symbol(#(#inputs,)* #variadic) #output;
        }
    }
}

/// Renames everything, in code and in documentation.
struct Rename<'a>(&'a BTreeMap<String, String>);

impl VisitMut for Rename<'_> {
    fn visit_ident_mut(&mut self, ident: &mut Ident) {
        if let Some(name) = self.0.get(&ident.to_string()) {
            *ident = format_ident!("{name}");
        }
    }

    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        let text: Vec<String> = attributes.iter().filter_map(doc).collect();
        attributes.retain(|attribute| doc(attribute).is_none());
        for line in for_c(&text.join("\n"), self.0) {
            attributes.push(syn::parse_quote! { #[doc = #line] });
        }
    }

    fn visit_field_mut(&mut self, field: &mut Field) {
        // A field with the name of a type keeps its name.
        self.visit_attributes_mut(&mut field.attrs);
        self.visit_type_mut(&mut field.ty);
    }

    fn visit_bare_fn_arg_mut(&mut self, argument: &mut syn::BareFnArg) {
        self.visit_type_mut(&mut argument.ty);
    }

    fn visit_pat_ident_mut(&mut self, _: &mut syn::PatIdent) {}

    fn visit_type_mut(&mut self, of: &mut Type) {
        // Drop `Option` around a named function pointer: in C it may be NULL anyway, and cbindgen does not resolve the name.
        if let Type::Path(path) = of
            && let Some(option) = path.path.segments.last()
            && option.ident == "Option"
            && let syn::PathArguments::AngleBracketed(arguments) = &option.arguments
            && let Some(syn::GenericArgument::Type(Type::Path(inside))) = arguments.args.first()
        {
            *of = Type::Path(inside.clone());
        }
        syn::visit_mut::visit_type_mut(self, of);
    }
}

/// A line of documentation.
fn doc(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(meta) = &attribute.meta else {
        return None;
    };
    match &meta.value {
        Expr::Lit(literal) if meta.path.is_ident("doc") => match &literal.lit {
            syn::Lit::Str(text) => Some(text.value().trim().to_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns documentation without Rust's links and remarks on C, with the header's names, wrapped again.
fn for_c(text: &str, names: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split("\n\n") {
        let text = renamed(
            &origin_in_brackets(&without_links(&paragraph.replace('\n', " "))),
            names,
        );
        if text.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let mut line = String::new();
        for word in text.split_whitespace() {
            if line.len() + 1 + word.len() > WIDTH {
                lines.push(std::mem::take(&mut line));
            }
            line += " ";
            line += word;
        }
        lines.push(line);
    }
    lines
}

/// Links are [`text`](target) and [`text`].
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("[`") {
        plain += before;
        let (text, after) = link.split_once(']').expect("the end of a link's text");
        plain.push('`');
        plain += text;
        rest = match after.strip_prefix('(') {
            Some(target) => {
                target
                    .split_once(')')
                    .expect("the end of a link's target")
                    .1
            }
            None => after,
        };
    }
    plain + rest
}

/// Moves an item's C header to the end, and drops sentences about C, which are for Rust readers.
fn origin_in_brackets(text: &str) -> String {
    let mut sentences = Vec::new();
    for sentence in text.split(". ") {
        if !sentence.starts_with("C has ") {
            sentences.push(sentence);
        }
    }
    let text = sentences.join(". ").replace("; nameless in C", "");
    let origin = text.rsplit(' ').next().unwrap_or_default();
    match origin
        .strip_prefix('`')
        .and_then(|name| name.strip_suffix(".h`"))
    {
        Some(name) => format!("{}({name}.h)", &text[..text.len() - origin.len()]),
        None => text,
    }
}

/// Replaces the mirror's names by the header's.
fn renamed(text: &str, names: &BTreeMap<String, String>) -> String {
    let mut text = text
        .replace("AcmEpType::PATH", "ACM_EP_INFO_PATH")
        .replace("`PATH`", "ACM_EP_INFO_PATH")
        .replace("`CLIENT_REREGISTER`", "IBV_EVENT_CLIENT_REREGISTER")
        .replace("this mirror", "this header")
        .replace("`u16`", "uint16_t")
        .replace("`u32`", "uint32_t")
        .replace("`u64`", "uint64_t")
        .replace('`', "");
    // A field of a type; not the word in "in a GID".
    while let Some(at) = text.match_indices("::").map(|(at, _)| at).find(|&at| {
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        text[..at].ends_with(is_letter) && text[at + 2..].starts_with(is_letter)
    }) {
        text.replace_range(at..at + 2, ".");
    }
    let mut renamed = String::new();
    let mut word = String::new();
    let mut previous = String::new();
    for character in text.chars().chain(['\n']) {
        if character.is_ascii_alphanumeric() || character == '_' {
            word.push(character);
            continue;
        }
        // "C's enum ibv_mtu" speaks of the original.
        let is_original = ["enum", "union", "struct"].contains(&previous.as_str());
        // "an IBV_MTU_ code" speaks of several constants.
        let is_family = word.ends_with('_') && names.keys().any(|name| name.starts_with(&word));
        match names.get(&word) {
            Some(own) if !is_original => renamed += own,
            None if is_family => renamed += &own_name(&word),
            _ => renamed += &word,
        }
        if !word.is_empty() {
            previous = std::mem::take(&mut word);
        }
        renamed.push(character);
    }
    renamed
        .trim_end()
        .replace("A ACMABI_", "An ACMABI_")
        .replace(" a ACMABI_", " an ACMABI_")
}
