//! Keys of lists: lookup, assignment and removal.
//! Promises: a key is a literal that an element of the list can have.

use flick_syntax::LiteralValue;
use flick_syntax::ast;

use super::{Exprs, unfold_path};
use crate::hir::{Expr, ExprKind, FieldId, FieldKind, Span, Ty, UnitId};
use crate::report;
use crate::units;

impl Exprs<'_> {
    /// `self.headers["host"]` in a grammar; `None` for another expression.
    pub(super) fn self_index(&mut self, index: &ast::IndexExpr, span: &Span) -> Option<Expr> {
        self.grammar.as_ref()?;
        let Some(ast::Expr::Field(base)) = index.base() else { return None };
        let (Some(ast::Expr::SelfValue(_)), Some(path)) = unfold_path(&base) else { return None };
        let path = path.iter().map(|name| name.text()).collect::<Vec<_>>().join(".");
        let key = index.index()?;
        super::self_fields::self_key(self, &path, &key, span)
    }

    /// `message.headers["host"]`; `None` if `base` is not a list with keys.
    pub(super) fn message_key(&mut self, base: &Expr, key: Option<ast::Expr>, span: &Span) -> Option<Expr> {
        let ExprKind::Field(message, list) = &base.kind else { return None };
        let Ty::Record(unit) = message.ty else { return None };
        let is_text = |key: &ast::Expr| match key {
            ast::Expr::Literal(literal) => matches!(literal.value(), Some(LiteralValue::Bytes(_))),
            _ => false,
        };
        let is_list = matches!(self.items.field(unit, *list).kind, FieldKind::List(_));
        let is_keyed = self.items.keys.is_keyed(unit, *list);
        if !is_keyed && (!is_list || !key.as_ref().is_some_and(is_text)) {
            return None;
        }
        let name = self.items.field(unit, *list).name.clone().unwrap_or_default();
        let known = self.key_number(unit, *list, &name, &key?);
        let Some((key, ty)) = known else { return Some(super::unknown(span.clone())) };
        let kind = ExprKind::FieldKey(message.clone(), *list, key);
        Some(Expr { kind, ty: Ty::Option(Box::new(ty)), span: span.clone() })
    }

    /// The number of a key and the type of its value; `None`: an error was reported.
    pub(crate) fn key_number(
        &mut self,
        unit: UnitId,
        list: FieldId,
        path: &str,
        key: &ast::Expr,
    ) -> Option<(u32, Ty)> {
        let location = self.span(key.range());
        let FieldKind::List(declared) = &self.items.field(unit, list).kind else { return None };
        if !self.items.keys.is_keyed(unit, list) {
            self.sink.push(report::structured::not_keyed(location, path));
            return None;
        }
        let checked = self.expr(key);
        let ExprKind::Str(bytes) = &checked.kind else {
            if checked.ty != Ty::Unknown {
                self.sink.push(report::structured::key_literal(location));
            }
            return None;
        };
        let keyed = declared.keyed.as_ref()?;
        let key_field = self.items.field(unit, keyed.key);
        if let FieldKind::Text { class, min_bytes, max_bytes, .. } = &key_field.kind {
            let class = class.map(|class| &self.items.classes[class.0 as usize]);
            let stray = class.and_then(|class| bytes.iter().find(|byte| !class.has(**byte)));
            let why = if let Some(byte) = stray {
                Some(format!("`{}` is not in its class", std::ascii::escape_default(*byte)))
            } else if bytes.len() < *min_bytes as usize {
                Some("the key is too short".to_owned())
            } else if bytes.len() > *max_bytes as usize {
                Some("the key is too long".to_owned())
            } else {
                None
            };
            if let Some(why) = why {
                let shown = bytes.escape_ascii().to_string();
                self.sink.push(report::structured::impossible_key(
                    location,
                    &shown,
                    &why,
                    key_field.span.clone(),
                ));
                return None;
            }
        }
        let index = self.items.keys.index(unit, list, bytes)?;
        let ty = units::grammar_type(&self.items.field(unit, keyed.value).kind);
        Some((index, ty))
    }
}
