//! Resolves names of a grammar to their widths and byte classes.
//! Promises: finds what is declared in the file or in a library that it uses; everything else is `None`. Results are
//! cached, and a cycle of names ends.

use std::cell::RefCell;
use std::collections::HashMap;

use flick_syntax::ast::{
    AstNode, ClassItemKind, Decl, Expr, File, ListType, NamedType, Type, UnitDecl, UnitItem,
};
use flick_syntax::{LiteralValue, parse};

use crate::html::{code, code_of, escape, one_line};
use crate::limits::{CLASSES_DEPTH_MAX, UNITS_DEPTH_MAX};

/// A file and the libraries that it uses.
pub(crate) struct Scope {
    /// The file.
    pub(crate) file: File,
    own: HashMap<String, Decl>,
    libraries: Vec<Library>,
    /// Widths of units and bytes of classes that are known, or being looked for.
    widths: RefCell<HashMap<DeclKey, Option<u32>>>,
    sets: RefCell<HashMap<DeclKey, ByteSet>>,
}

/// A library in use.
struct Library {
    alias: String,
    page: String,
    decls: HashMap<String, Decl>,
}

/// A declaration by library (none: the file itself) and name.
type DeclKey = (Option<usize>, String);

/// Set of the bytes of a class.
pub(crate) type ByteSet = [bool; 256];

/// A declaration, and where it is.
pub(crate) struct Found {
    /// The declaration.
    pub(crate) decl: Decl,
    /// Its page; empty for this one.
    page: String,
    key: DeclKey,
}

impl Found {
    /// Returns `text` as a link to the declaration.
    pub(crate) fn link(&self, text: &str) -> String {
        format!("<a href=\"{}#{}\">{}</a>", escape(&self.page), escape(&self.key.1), code(text))
    }
}

impl Scope {
    /// Reads the libraries of `file`; `load` gives the text of one.
    pub(crate) fn of(file: File, load: &dyn Fn(&str) -> Option<String>) -> Scope {
        let mut libraries = Vec::new();
        for used in file.uses() {
            let Some(name) = used.name() else { continue };
            let Some(text) = load(name.text()) else { continue };
            let alias = used.alias().map_or(name.text().to_owned(), |alias| alias.text().to_owned());
            let decls = index(&parse(&text).file());
            libraries.push(Library { alias, page: format!("{}.html", name.text()), decls });
        }
        let own = index(&file);
        Scope { file, own, libraries, widths: RefCell::default(), sets: RefCell::default() }
    }

    /// Finds the declaration `name` as the file sees it, in the library of that alias if one is named.
    pub(crate) fn find(&self, alias: Option<&str>, name: &str) -> Option<Found> {
        self.find_from(None, alias, name)
    }

    /// Finds a declaration as `library` sees it. What a library uses itself is not read.
    fn find_from(&self, library: Option<usize>, alias: Option<&str>, name: &str) -> Option<Found> {
        let found = |library: Option<usize>, page: &str, decl: &Decl| Found {
            decl: decl.clone(),
            page: page.to_owned(),
            key: (library, name.to_owned()),
        };
        if let Some(index) = library {
            let library = &self.libraries[index];
            return library.decls.get(name).map(|decl| found(Some(index), &library.page, decl));
        }
        if alias.is_none()
            && let Some(decl) = self.own.get(name)
        {
            return Some(found(None, "", decl));
        }
        let named = self.libraries.iter().enumerate();
        let mut named = named.filter(|(_, library)| alias.is_none_or(|alias| alias == library.alias));
        named.find_map(|(index, library)| {
            library.decls.get(name).map(|decl| found(Some(index), &library.page, decl))
        })
    }

    fn find_type(&self, library: Option<usize>, ty: &NamedType) -> Option<Found> {
        let alias = ty.library();
        self.find_from(library, alias.as_ref().map(|name| name.text()), ty.name()?.text())
    }

    /// Returns which bytes the class called `name` holds; none if there is no such class.
    pub(crate) fn bytes_of(&self, name: &str) -> ByteSet {
        match self.find(None, name) {
            Some(found) => self.bytes_from(&found, 0),
            None => [false; 256],
        }
    }

    fn bytes_from(&self, found: &Found, depth: u32) -> ByteSet {
        let Decl::Class(class) = &found.decl else { return [false; 256] };
        if let Some(known) = self.sets.borrow().get(&found.key) {
            return *known;
        }
        // Known as empty while it is looked for, so that a circle of classes ends.
        self.sets.borrow_mut().insert(found.key.clone(), [false; 256]);
        let mut set = [false; 256];
        for item in class.items() {
            match item.kind() {
                Some(ClassItemKind::Bytes(bytes)) => {
                    bytes.iter().for_each(|byte| set[usize::from(*byte)] = true);
                }
                Some(ClassItemKind::Range(first, last)) => {
                    if let ([first], [last]) = (first.as_slice(), last.as_slice()) {
                        (*first..=*last).for_each(|byte| set[usize::from(byte)] = true);
                    }
                }
                Some(ClassItemKind::Class(name)) if depth < CLASSES_DEPTH_MAX => {
                    let alias = item.library();
                    let alias = alias.as_ref().map(|name| name.text());
                    if let Some(other) = self.find_from(found.key.0, alias, name.text()) {
                        let other = self.bytes_from(&other, depth + 1);
                        (0..256).for_each(|byte| set[byte] |= other[byte]);
                    }
                }
                Some(ClassItemKind::Class(_)) | None => {}
            }
        }
        if class.is_complement() {
            set.iter_mut().for_each(|is_in| *is_in = !*is_in);
        }
        self.sets.borrow_mut().insert(found.key.clone(), set);
        set
    }

    /// Returns a type with its name as a link, escaped.
    pub(crate) fn type_link(&self, ty: &Type) -> String {
        match ty {
            Type::Named(named) => self.link(named),
            Type::List(list) => self.list_link(list),
            Type::Tuple(_) => code(&one_line(ty)),
        }
    }

    fn link(&self, ty: &NamedType) -> String {
        match self.find_type(None, ty) {
            Some(found) => found.link(&one_line(ty)),
            None => code_of(ty),
        }
    }

    fn list_link(&self, ty: &ListType) -> String {
        let element = ty.element().map_or(String::new(), |element| self.type_link(&element));
        let bound =
            ty.len().map_or(String::new(), |len| format!("<code>&lt;{}&gt;</code>", escape(&one_line(&len))));
        format!("<code>[</code>{element}<code>]</code>{bound}")
    }

    /// Returns how many bits a type has on the wire, where that does not depend on the message.
    pub(crate) fn bits_of(&self, ty: &NamedType) -> Option<u32> {
        self.bits_from(None, ty, 0)
    }

    fn bits_from(&self, library: Option<usize>, ty: &NamedType, depth: u32) -> Option<u32> {
        if let Some(bits) = int_bits(ty.name()?.text()) {
            return Some(bits);
        }
        let found = self.find_type(library, ty)?;
        match &found.decl {
            Decl::Enum(decl) => match decl.base()? {
                Type::Named(base) => int_bits(base.name()?.text()),
                _ => None,
            },
            Decl::Unit(unit) if depth < UNITS_DEPTH_MAX => {
                if let Some(known) = self.widths.borrow().get(&found.key) {
                    return *known;
                }
                self.widths.borrow_mut().insert(found.key.clone(), None); // it may hold itself
                let bits = self.unit_bits(unit, found.key.0, depth + 1);
                self.widths.borrow_mut().insert(found.key.clone(), bits);
                bits
            }
            _ => None,
        }
    }

    fn unit_bits(&self, unit: &UnitDecl, library: Option<usize>, depth: u32) -> Option<u32> {
        let mut bits = 0u32;
        for item in unit.items() {
            let width = match item {
                UnitItem::Property(_) | UnitItem::Var(_) | UnitItem::Check(_) => 0,
                UnitItem::Literal(literal) if literal.attrs().next().is_none() => {
                    u32::try_from(literal.bytes()?.len()).ok()?.checked_mul(8)?
                }
                UnitItem::Switch(_) | UnitItem::Literal(_) => return None,
                UnitItem::Bits(group) => constant(&group.width()?)?,
                UnitItem::Field(field) => {
                    if field.attrs().any(|attr| attr.name().is_some_and(|name| name.text() == "if")) {
                        return None;
                    }
                    let Some(Type::Named(ty)) = field.ty() else { return None };
                    self.bits_from(library, &ty, depth)?
                }
            };
            bits = bits.checked_add(width)?;
        }
        Some(bits)
    }
}

/// Returns the declarations of a file by name; of two with one name, the first.
fn index(file: &File) -> HashMap<String, Decl> {
    let mut decls = HashMap::new();
    for decl in file.decls() {
        if let Some(name) = name_of(&decl) {
            decls.entry(name).or_insert(decl);
        }
    }
    decls
}

/// Returns the name of a declaration.
pub(crate) fn name_of(decl: &Decl) -> Option<String> {
    let name = match decl {
        Decl::Use(_) => None,
        Decl::Record(decl) => decl.name(),
        Decl::Unit(decl) => decl.name(),
        Decl::Enum(decl) => decl.name(),
        Decl::Class(decl) => decl.name(),
        Decl::Variant(decl) => decl.name(),
        Decl::Global(decl) => decl.name(),
        Decl::Proc(decl) => decl.name(),
        Decl::Fun(decl) => decl.name(),
    };
    name.map(|name| name.text().to_owned())
}

/// Returns how many bits an integer of the language has.
fn int_bits(name: &str) -> Option<u32> {
    Some(match name {
        "uint8" | "int8" => 8,
        "uint16" | "int16" => 16,
        "uint32" | "int32" => 32,
        "uint64" | "int64" => 64,
        _ => return None,
    })
}

/// Returns the value of a plain number; anything else depends on more than the text.
pub(crate) fn constant(expr: &Expr) -> Option<u32> {
    match expr.clone().unparenthesised()? {
        Expr::Literal(literal) => match literal.value()? {
            LiteralValue::Int(value) => u32::try_from(value).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns where the picture and the table of a unit speak of a field.
pub(crate) fn field_id(unit: &str, field: &str) -> String {
    format!("{unit}.{field}")
}

/// Says what kind of declaration this is, for the list of contents.
pub(crate) fn sort_of(decl: &Decl) -> &'static str {
    match decl {
        Decl::Use(_) => "library",
        Decl::Record(_) => "record",
        Decl::Unit(_) => "message",
        Decl::Enum(_) => "enumeration",
        Decl::Class(_) => "class of bytes",
        Decl::Variant(_) => "variant",
        Decl::Global(_) => "shared value",
        Decl::Proc(_) => "process",
        Decl::Fun(_) => "function",
    }
}

/// Returns the range of a declaration in the source.
pub(crate) fn range_of(decl: &Decl) -> std::ops::Range<usize> {
    flick_syntax::ast::range_of(decl.syntax())
}
