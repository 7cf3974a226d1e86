//! Grammars in which each construct stands once, beside those of the library.

/// Text: runs, numbers, literals, choices, a keyed list.
pub const CALC: &str = r#"
type digit = class { "0".."9" };
type word  = class { "a".."z", "A".."Z", "-" };
type line  = class not { "\x00".."\x1f" };

type entry = unit {
  name : string<12> &of = word; ":";
  : string<4> &of = blank &min = 0;
  value : string<40> &until = "\r\n" &of = line;
};
type blank = class { " ", "\t" };

type cell = unit { tag : string<1> &length = 1; switch self.tag {
  "*": { kids : decimal<2>; "\r\n"; }
  "+": { text : string<20> &until = "\r\n"; }
  "$": { size : decimal<3>; "\r\n"; data : bytes<200> &length = self.size; "\r\n"; }
}; };

type msg = unit {
  %order = in_order;
  verb : string<8> &of = word; " ";
  count : decimal<3>; " " &optional; "|";
  check self.count < 900;
  switch self.verb {
    "get", "GET": { key : string<20> &until = "\r\n"; }
    "put": { size : hex<3>; "\r\n"; data : bytes<5000> &length = self.size; }
    "head": { "\r\n"; fields : [entry]<8> &until = "\r\n" &key = name &value = value &nocase &once = ["size"];
              check (self.fields["size"] else "0") != "13"; }
    else: { "\n"; }
  };
};
"#;

/// Bytes: bits, integers, lists of every end, trees, parameters, what streams.
pub const BINARY: &str = r#"
type pair = unit { len : uint8; data : bytes<9> &length = self.len mod 10; };
type blob(most : uint32) = unit { size : varint<3>; check self.size <= self.most; data : bytes &length = self.size; };
type node = unit {
  %byteorder = big;
  tag : uint8;
  switch self.tag mod 3 {
    0: { leaf : uint16; }
    1: { kids : uint8; check self.kids < 4; }
    else: { name : string<6> &until = "\x00"; }
  };
};

type msg = unit {
  %order = in_order;
  %byteorder = big;
  bits<16> { version : 4; has_id : 1; has_pairs : 1; kind : 2; size : 8; };
  id : uint32 &if = self.has_id == 1;
  signed : decimal<4> &signed; ";";
  vint : vint;
  pairs : [pair]<12> &length = self.size &if = self.has_pairs == 1;
  words : [word]<9> &count = self.kind;
  tree : [node]<20> &children = self.tree.kids;
  var sum : uint32 &sum = self.blobs.size;
  blobs : [blob(5000)] &last = self.blobs.size == 0;
};
type word = unit { text : string<12> &until = " "; };

type answer = unit {
  var asked : uint64 &kept;
  code : hex<2>; "\n";
  switch self.asked {
    0: { body : bytes &length = self.code; "\n"; }
    1: { rows : [row] &until = ".\n"; }
    else: { rest : bytes &to_close; }
  };
};
type row = unit { text : string<30> &until = "\n"; };
"#;
