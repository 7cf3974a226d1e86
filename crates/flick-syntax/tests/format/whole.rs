//! Golden programs for the constructs that are not in the paper's listings.

use crate::check;

#[test]
fn the_whole_language_keeps_its_form() {
    let source = include_str!("../data/whole.flick");
    check(source, source);
}

#[test]
fn whole_grammars_keep_their_form() {
    let source = include_str!("../data/grammar.flick");
    check(source, source);
}

#[test]
fn items_on_one_line_and_on_several() {
    check(
        "type t=class{\"a\"..\"z\",x . y}\ntype u( n :int )=unit{a:hex<4>;\" \";b:uint8;\"\\r\";\"\\n\"&optional;\nswitch self . a{1 , 2:{c:uint8;}3:{d:uint8;e:uint8;}else:{ }};switch self.b { 1:{\"x\";f:uint8;} else :{\n} };bits< 8 >{g:1;:7;};bits<8>{g:1;\nh:7;};check not(self.a>1)&fault=too_long;i:[u( 1 )];}",
        "type t = class { \"a\"..\"z\", x.y }
type u(n: int) = unit {
  a : hex<4>; \" \"; b : uint8; \"\\r\"; \"\\n\" &optional;
  switch self.a {
    1, 2: { c : uint8; }
    3: {
      d : uint8;
      e : uint8;
    }
    else: {}
  };
  switch self.b {
    1: { \"x\"; f : uint8; }
    else: {}
  };
  bits<8> { g : 1; : 7; };
  bits<8> {
    g : 1;
    h : 7;
  };
  check not (self.a > 1) &fault = too_long;
  i : [u(1)];
}
",
    );
}

#[test]
fn types_with_lines() {
    check(
        "type colour : enum\n    red# first\n    green=5  # second\n\ntype shape:variant\n  circle:int\n  rect :( int,int )\n  nothing\ntype p: record\n x:n . k\n",
        "type colour: enum
  red       # first
  green = 5 # second

type shape: variant
  circle : int
  rect   : (int, int)
  nothing
type p: record
  x : n.k
",
    );
}

#[test]
fn state_and_events() {
    check(
        "global hits:dict< ipv4,int >max 100 entries,expire 60s   evict lru,snapshot  \"h\"every 30s\nglobal b : dict<int,int>   # why\n      max 10 entries ,\n   expire 1h\nproc P : (a/b c)\n local n:int:=0\n except broken cs [ i ] :log( i )\n except closed c:\n    log(1)\n every  1s :\n      n:=n+1\n",
        "global hits: dict<ipv4, int> max 100 entries, expire 60s evict lru, snapshot \"h\" every 30s
global b: dict<int, int> # why
  max 10 entries,
  expire 1h
proc P: (a/b c)
  local n: int := 0
  except broken cs[i]: log(i)
  except closed c:
    log(1)
  every 1s:
    n := n + 1
",
    );
}

#[test]
fn asks_and_updates() {
    check(
        "fun f: () -> ()\n  let r=ask  b [ 0 ] with( q with a=1 )timeout 5ms\n       else  none\n  let s=ask all[ b with q,c  with r ]\n          timeout 1s\n  update d[ k ]from v :( v else 0 )+1\n  let t=update d[k] from v:\n      if v==1:none\n      else :2\n",
        "fun f: () -> ()
  let r = ask b[0] with (q with a = 1) timeout 5ms
    else none
  let s = ask all [b with q, c with r]
    timeout 1s
  update d[k] from v: (v else 0) + 1
  let t = update d[k] from v:
    if v == 1: none
    else: 2
",
    );
}

#[test]
fn repetitions_and_parts() {
    check(
        "fun f: () -> ()\n  let ( a,_ )=p\n  for i in 0 .. len( x ):log( i )\n  let s=fold x in xs,\n          n=0:\n      n+x\n  let m=map x in xs:x . 0 . 1+1\n  let k=filter x in a ..b:x>0\n  let t=s[ .. 2 ]+s[ a .. ]+s[1..-2]\n  switch v :\n    rect( w,_ ):w\n    some  x:x\n    n . c . d :y\n",
        "fun f: () -> ()
  let (a, _) = p
  for i in 0..len(x): log(i)
  let s = fold x in xs,
      n = 0:
      n + x
  let m = map x in xs: x.0.1 + 1
  let k = filter x in a..b: x > 0
  let t = s[..2] + s[a..] + s[1..-2]
  switch v:
    rect (w, _): w
    some x: x
    n.c.d: y
",
    );
}
