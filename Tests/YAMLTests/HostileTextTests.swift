import Testing
import YAML

@Suite("A hostile YAML text")
struct HostileTextTests {
  @Test(
    "a text that is not UTF-8 is refused with the place of the byte",
    arguments: [
      ([0xFF], 1, 1), ([0x61, 0x3A, 0x20, 0xC0, 0x80], 1, 4),
      ([0x0A, 0xC3, 0xA4, 0xED, 0xA0, 0x80], 2, 2),
      ([0x61, 0xC3], 1, 2), ([0xFF, 0xFE, 0x61, 0x00], 1, 1),
    ] as [([UInt8], Int, Int)])
  func invalid(bytes: [UInt8], line: Int, column: Int) {
    let expected = YAMLError(.invalidUTF8, at: Location(line: line, column: column))
    #expect(Document(reading: bytes).mistakes == [expected])
  }

  @Test("a text above the size limit is refused unread, and at the limit it is read")
  func size() {
    let limit = Document.Limits().bytes
    let fitting = Array("a: 1\n#".utf8) + Array(repeating: UInt8(ascii: "x"), count: limit - 6)
    #expect(Document(reading: fitting).mistakes.isEmpty)
    #expect(Document(reading: fitting + [0x78]).mistakes.map(\.reason) == [.tooLarge(limit: limit)])
  }

  @Test(
    "a text nested up to the limit is read, and deeper nesting is refused",
    arguments: ["[", "{a: "])
  func depth(open: String) {
    let close = open == "[" ? "]" : "}"
    func text(_ depth: Int) -> String {
      String(repeating: open, count: depth) + String(repeating: close, count: depth)
    }
    #expect(throws: Never.self) { try Document(text(32)) }
    let error = #expect(throws: YAMLError.self) { try Document(text(33)) }
    #expect(error?.reason == .tooDeep(limit: 32))
  }

  @Test(
    "a text that has only brackets, dashes or question marks is parsed quickly",
    arguments: ["[", "- ", "? ", "{", "a: "])
  func endless(piece: String) {
    let text = String(repeating: piece, count: (1 << 20) / piece.utf8.count)
    #expect(throws: YAMLError.self) { try Document(text) }
  }

  @Test("a text with too many nodes is refused")
  func nodes() {
    let text = "[" + String(repeating: "a,", count: 100_000) + "]"
    let error = #expect(throws: YAMLError.self) { try Document(text) }
    #expect(error?.reason == .tooManyNodes(limit: 100_000))
  }

  @Test("a text with a billion laughs is not expanded")
  func bomb() {
    var text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for level in 1...9 {
      let aliases = Array(repeating: "*a\(level - 1)", count: 9).joined(separator: ", ")
      text += "a\(level): &a\(level) [\(aliases)]\n"
    }
    let mistakes = Document(reading: Array(text.utf8)).mistakes
    #expect(mistakes.count == 81)
    #expect(mistakes.first?.description == "2:10: a1[0]: aliases (*a0) are not allowed")
  }

  @Test("a text that is cut off anywhere is read or refused without a crash")
  func truncated() {
    let whole = Array("a: &x {b: [1, \"\\u00e4\", 'y'], ? c : !!str |-\n  t\n}\nd: *x\n".utf8)
    for length in 0...whole.count {
      _ = Document(reading: Array(whole.prefix(length)))
    }
  }
}
