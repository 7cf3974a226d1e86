meta:
  id: pcap_record
  endian: le
doc: One packet of a capture, behind the header of the file.
seq:
  - id: seconds
    type: u4
  - id: fraction
    type: u4
  - id: kept
    type: u4
    valid:
      max: 262144
  - id: size
    type: u4
    valid:
      min: kept
  - id: packet
    size: kept
