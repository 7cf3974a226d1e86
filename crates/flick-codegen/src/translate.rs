//! From our functions to Cranelift's.
//! Promises: total on modules that pass the verifier; an integer, a bytes value, a channel is an `i64`, a boolean an
//! `i8` that is 0 or 1.
//! Not here: meaning, which must equal `flick_ir::semantics`; the tests compare the two.

mod arithmetic;
mod bytes;
mod compare;
mod digits;
mod ends;
mod function;
mod host;
mod near;
mod output;
mod scan;
mod state;
mod text;
mod words;

use cranelift_codegen::ir::{self, AbiParam, Signature, Type as ClifType, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_jit::JITModule;
use cranelift_module::{FuncId as JitId, Linkage, Module as _, ModuleDeclarations};
use flick_ir::data::{FuncKind, Function, LineForm, Type};

use crate::options::CompileError;
use crate::symbols;
use crate::symbols::lines::LineTable;
use crate::symbols::scan::ClassTable;

pub(crate) use function::function;

/// Context shared by all functions of one program.
pub(crate) struct Shared<'a> {
    /// The machine.
    pub(crate) isa: &'a dyn TargetIsa,
    /// All functions, its own and the runtime's.
    pub(crate) declarations: &'a ModuleDeclarations,
    /// Its constants at their final address.
    pub(crate) consts: &'a [u8],
    /// Its classes of bytes at their final address.
    pub(crate) classes: &'a [ClassTable],
    /// The lines that its parsers pass over, at their final address.
    pub(crate) lines: &'a [(LineForm, LineTable)],
    /// Whether to look for the end of something sixteen bytes at a time.
    pub(crate) steps_by_sixteen: bool,
    /// Its functions, by `FuncId`.
    pub(crate) ids: &'a [JitId],
    /// Number of channels of the program.
    pub(crate) channels: usize,
    /// Whether a counter of the program is a gauge, by number.
    pub(crate) is_gauge: &'a [bool],
    /// The runtime's functions, by `SymbolId`.
    pub(crate) symbols: &'a [JitId],
}

impl Shared<'_> {
    /// Makes a declared function callable in `target`. (`Module::declare_func_in_func` does the same, on one thread.)
    fn import(&self, id: JitId, target: &mut ir::Function) -> ir::FuncRef {
        let declared = self.declarations.get_function_decl(id);
        let signature = target.import_signature(declared.signature.clone());
        let name = ir::UserExternalName { namespace: 0, index: id.as_u32() };
        let name = ir::ExternalName::user(target.declare_imported_user_function(name));
        let colocated = declared.linkage.is_final();
        target.import_function(ir::ExtFuncData { name, signature, colocated, patchable: false })
    }
}

/// Makes the runtime's functions known.
pub(crate) fn declare_symbols(jit: &mut JITModule) -> Result<Vec<JitId>, CompileError> {
    let declare = |symbol: &symbols::RuntimeSymbol| {
        let mut signature = jit.make_signature();
        signature.params = vec![AbiParam::new(types::I64); symbol.params];
        signature.returns = vec![AbiParam::new(types::I64); usize::from(symbol.returns)];
        jit.declare_function(symbol.name, Linkage::Import, &signature)
            .map_err(|error| CompileError::Backend(error.to_string()))
    };
    symbols::all().iter().map(declare).collect()
}

/// Cranelift's signature of a function: parsers `(frame, data, len) -> step word`, all others `(call, params...)`,
/// where a parameter of type frame is left out; rules give 0 or the state they are suspended in.
pub(crate) fn signature(jit: &JITModule, function: &Function) -> Signature {
    let mut signature = jit.make_signature();
    if function.kind == FuncKind::Parser {
        signature.params = vec![AbiParam::new(types::I64); 3];
        signature.returns.push(AbiParam::new(types::I64));
        return signature;
    }
    signature.params.push(AbiParam::new(types::I64));
    for param in &function.blocks[0].params {
        let ty = function.values[param.0 as usize];
        if ty != Type::Frame {
            signature.params.push(AbiParam::new(clif_type(ty)));
        }
    }
    if function.kind == FuncKind::Rule {
        // How it ended: 0, or the state it is suspended in.
        signature.returns.push(AbiParam::new(types::I64));
    }
    signature.returns.extend(function.results.iter().map(|ty| AbiParam::new(clif_type(*ty))));
    signature
}

/// Cranelift's type of a value.
fn clif_type(ty: Type) -> ClifType {
    if ty == Type::Bool { types::I8 } else { types::I64 }
}
