/// The version of a Debian package, compared as dpkg does (deb-version(7)).
struct DebianVersion: Comparable {
  private let epoch: Int
  private let parts: [[UInt8]]

  init(_ text: String) {
    let colon = text.firstIndex(of: ":")
    epoch = colon.flatMap { Int(text[..<$0]) } ?? 0
    let rest = colon.map { text[text.index(after: $0)...] } ?? text[...]
    let dash = rest.lastIndex(of: "-")
    let upstream = dash.map { rest[..<$0] } ?? rest
    let revision = dash.map { rest[rest.index(after: $0)...] } ?? "0"
    parts = [Array(upstream.utf8), Array(revision.utf8)]
  }

  static func == (a: DebianVersion, b: DebianVersion) -> Bool { !(a < b) && !(b < a) }

  static func < (a: DebianVersion, b: DebianVersion) -> Bool {
    if a.epoch != b.epoch { return a.epoch < b.epoch }
    for (one, other) in zip(a.parts, b.parts) {
      let order = order(one[...], other[...])
      if order != 0 { return order < 0 }
    }
    return false
  }

  /// By turns a run of other characters, by their rank, and a run of digits, as a number.
  private static func order(_ a: ArraySlice<UInt8>, _ b: ArraySlice<UInt8>) -> Int {
    var (a, b) = (a, b)
    while !a.isEmpty || !b.isEmpty {
      while a.first.map(isDigit) == false || b.first.map(isDigit) == false {
        let difference = rank(a.first) - rank(b.first)
        if difference != 0 { return difference }
        (a, b) = (a.dropFirst(), b.dropFirst())
      }
      let (one, other) = (digits(&a), digits(&b))
      if one.count != other.count { return one.count - other.count }
      for (x, y) in zip(one, other) where x != y { return Int(x) - Int(y) }
    }
    return 0
  }

  private static func isDigit(_ byte: UInt8) -> Bool { 0x30...0x39 ~= byte }

  /// A tilde goes before the end, the end and digits before letters, letters before all else.
  private static func rank(_ byte: UInt8?) -> Int {
    guard let byte, !isDigit(byte) else { return 0 }
    if byte == UInt8(ascii: "~") { return -1 }
    let isLetter = 0x61...0x7A ~= byte | 0x20
    return isLetter ? Int(byte) : Int(byte) + 256
  }

  /// Without leading zeros.
  private static func digits(_ bytes: inout ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    let run = bytes.prefix(while: isDigit)
    bytes = bytes.dropFirst(run.count)
    return run.drop { $0 == 0x30 }
  }
}
