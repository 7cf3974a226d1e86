meta:
  id: memcached_binary
  endian: be
doc: A request of memcached's binary protocol; the lengths are checked, as far as the language can say it.
seq:
  - id: magic
    type: u1
    valid: 0x80
  - id: opcode
    type: u1
  - id: key_len
    type: u2
    valid:
      max: 250
  - id: extras_len
    type: u1
  - id: data_type
    type: u1
  - id: status_or_v_bucket
    type: u2
  - id: total_len
    type: u4
    valid:
      min: extras_len + key_len
  - id: opaque
    type: u4
  - id: cas
    type: u8
  - id: extras
    size: extras_len
  - id: key
    size: key_len
  - id: value
    size: total_len - extras_len - key_len
