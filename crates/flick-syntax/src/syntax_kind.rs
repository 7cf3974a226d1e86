//! The kinds of tokens and nodes of the tree, and the lexical rules of the tokens.
//! Promises: every token has one kind here, every node one kind here; the numbers are not stable between releases.
//! Not here: how nodes nest (`parser.rs`), typed access (`ast.rs`).

use logos::Logos;

/// Declares the enum together with the table that turns a number back into a kind without `unsafe`.
macro_rules! syntax_kinds {
    ($( $(#[$meta:meta])* $name:ident ),* $(,)?) => {
        /// Kind of a token or a node in the tree.
        #[expect(missing_docs, reason = "each kind is named after the text or the construct it stands for")]
        #[derive(Logos, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum SyntaxKind { $( $(#[$meta])* $name ),* }

        const KINDS: &[SyntaxKind] = &[ $( SyntaxKind::$name ),* ];
    };
}

syntax_kinds! {
    // Trivia: in the tree, invisible to the parser.
    #[regex(r"[ \t\r\u{FEFF}]+")]
    Whitespace,
    #[regex(r"\r?\n")]
    LineBreak,
    #[regex(r"#[^\r\n]*", allow_greedy = true)]
    Comment,
    /// A comment of another language; reported by the lexer, otherwise a comment.
    #[regex(r"//[^\r\n]*", allow_greedy = true)]
    ForeignComment,
    /// Bytes that start no token; reported by the lexer.
    Unknown,

    // Words with more than one letter's worth of meaning.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
    Ident,
    /// Decimal or hexadecimal, with an optional unit; checked by `literal.rs`.
    #[regex(r"[0-9][0-9A-Za-z_]*")]
    Number,
    /// A number with a decimal point, which flick does not have.
    #[regex(r"[0-9][0-9_]*\.[0-9][0-9A-Za-z_]*")]
    FractionalNumber,
    #[regex(r#""([^"\\\r\n]|\\[^\r\n])*""#)]
    Str,
    /// A string whose closing quote is missing on its line.
    #[regex(r#""([^"\\\r\n]|\\[^\r\n])*\\?"#)]
    OpenStr,
    /// A string in single quotes, which flick does not have.
    #[regex(r"'[^'\r\n]*'?")]
    SingleQuoted,

    // Reserved words.
    #[token("use")] UseKw,
    #[token("type")] TypeKw,
    #[token("proc")] ProcKw,
    #[token("fun")] FunKw,
    #[token("let")] LetKw,
    #[token("if")] IfKw,
    #[token("else")] ElseKw,
    #[token("switch")] SwitchKw,
    #[token("for")] ForKw,
    #[token("fold")] FoldKw,
    #[token("foldt")] FoldtKw,
    #[token("local")] LocalKw,
    #[token("global")] GlobalKw,
    #[token("and")] AndKw,
    #[token("or")] OrKw,
    #[token("not")] NotKw,
    #[token("mod")] ModKw,
    #[token("with")] WithKw,
    #[token("true")] TrueKw,
    #[token("false")] FalseKw,
    #[token("self")] SelfKw,

    // Punctuation.
    #[token("(")] LParen,
    #[token(")")] RParen,
    #[token("[")] LBrack,
    #[token("]")] RBrack,
    #[token("{")] LBrace,
    #[token("}")] RBrace,
    #[token(":")] Colon,
    #[token(":=")] ColonEq,
    #[token(",")] Comma,
    #[token(";")] Semi,
    #[token(".")] Dot,
    #[token("..")] DotDot,
    #[token("...")] Ellipsis,
    #[token("|")] Pipe,
    #[token("=>")] FatArrow,
    #[token("<=>")] Join,
    #[token("->")] Arrow,
    #[token("=")] Eq,
    #[token("==")] Eq2,
    #[token("!=")] Neq,
    #[token("<")] Lt,
    #[token("<=")] Le,
    #[token(">")] Gt,
    #[token(">=")] Ge,
    #[token("+")] Plus,
    #[token("-")] Minus,
    #[token("*")] Star,
    #[token("/")] Slash,
    #[token("%")] Percent,
    #[token("&")] Amp,
    #[token("$$")] DollarDollar,

    // Spelled so in other languages; lexed whole to be explained whole.
    #[token("&&")] Amp2,
    #[token("||")] Pipe2,
    #[token("!")] Bang,
    #[token("+=")] PlusEq,
    #[token("-=")] MinusEq,
    #[token("|>")] PipeGt,

    // Virtual tokens of the layout pass: never in the tree.
    LineEnd,
    Indent,
    Dedent,
    EndOfFile,

    // Nodes: declarations.
    File,
    UseDecl,
    RecordDecl,
    RecordField,
    UnitDecl,
    UnitProperty,
    UnitField,
    UnitVar,
    UnitLiteral,
    UnitBits,
    BitField,
    UnitCheck,
    UnitSwitch,
    UnitArm,
    UnitElse,
    Attr,
    ClassDecl,
    ClassItem,
    EnumDecl,
    EnumVariant,
    VariantDecl,
    VariantCase,
    GlobalDecl,
    MaxProp,
    ExpireProp,
    EvictProp,
    SnapshotProp,
    ProcDecl,
    FunDecl,
    ParamList,
    Param,
    ResultList,

    // Nodes: types.
    NamedType,
    TypeArgs,
    ListType,
    TupleType,
    ChanType,
    ChanArrayType,
    ChanEnd,

    // Nodes: statements.
    Block,
    Rule,
    LetStmt,
    ExprStmt,
    ChainStmt,
    JoinStmt,
    AssignStmt,
    ForStmt,
    LocalStmt,
    ExceptStmt,
    EveryStmt,
    EllipsisStmt,

    // Nodes: expressions.
    Literal,
    NameExpr,
    SelfExpr,
    DollarExpr,
    ParenExpr,
    TupleExpr,
    ListExpr,
    UnaryExpr,
    BinaryExpr,
    CallExpr,
    ArgList,
    IndexExpr,
    RangeExpr,
    FieldExpr,
    TupleFieldExpr,
    RecordExpr,
    FieldInit,
    WithExpr,
    IfExpr,
    IfBranch,
    ElseBranch,
    SwitchExpr,
    SwitchArm,
    Pattern,
    Binding,
    DefaultExpr,
    MapExpr,
    MapArm,
    MapElse,
    InExpr,
    FoldtExpr,
    FoldExpr,
    MapEachExpr,
    FilterExpr,
    AskExpr,
    AskAllExpr,
    AskItem,
    UpdateExpr,

    /// Source text that the parser could not understand.
    Error,
}

use SyntaxKind::*;

impl SyntaxKind {
    /// Says whether the parser never sees this token.
    pub fn is_trivia(self) -> bool {
        matches!(self, Whitespace | LineBreak | Comment | ForeignComment | Unknown)
    }

    /// Says whether this is a virtual token of the layout pass (or the end of the file).
    pub(crate) fn is_virtual(self) -> bool {
        matches!(self, LineEnd | Indent | Dedent | EndOfFile)
    }

    /// Says whether this is a reserved word.
    pub fn is_keyword(self) -> bool {
        (UseKw..=SelfKw).contains(&self)
    }

    /// Says whether this is a name or a reserved word, that is, may name a field.
    pub(crate) fn is_word(self) -> bool {
        self == Ident || self.is_keyword()
    }

    /// Names a token for a message: quoted text for fixed tokens, a noun for the others.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Ident => "a name",
            Number => "a number",
            Str => "a string",
            LParen => "`(`",
            RParen => "`)`",
            LBrack => "`[`",
            RBrack => "`]`",
            LBrace => "`{`",
            RBrace => "`}`",
            Colon => "`:`",
            ColonEq => "`:=`",
            Comma => "`,`",
            Semi => "`;`",
            Dot => "`.`",
            DotDot => "`..`",
            Eq => "`=`",
            Lt => "`<`",
            Gt => "`>`",
            Slash => "`/`",
            ElseKw => "`else`",
            WithKw => "`with`",
            Arrow => "`->`",
            FatArrow => "`=>`",
            LineEnd | Dedent => "the end of the line",
            Indent => "deeper indentation",
            EndOfFile => "the end of the file",
            _ => "something else",
        }
    }
}

/// Tells the tree library which kinds are ours.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlickLanguage {}

impl rowan::Language for FlickLanguage {
    type Kind = SyntaxKind;

    fn kind_from_raw(raw: rowan::SyntaxKind) -> SyntaxKind {
        *KINDS.get(usize::from(raw.0)).expect("the tree holds only kinds that `kind_to_raw` made")
    }

    fn kind_to_raw(kind: SyntaxKind) -> rowan::SyntaxKind {
        rowan::SyntaxKind(kind as u16)
    }
}

/// A node of the lossless tree.
pub type SyntaxNode = rowan::SyntaxNode<FlickLanguage>;
/// A token of the lossless tree.
pub type SyntaxToken = rowan::SyntaxToken<FlickLanguage>;
/// A node or a token of the lossless tree.
pub type SyntaxElement = rowan::SyntaxElement<FlickLanguage>;
