import Testing
import YAML

@Suite("A YAML document")
struct DocumentTests {
  @Test("a YAML document becomes a tree of nodes with lines and columns")
  func tree() throws {
    let text = """
      # a comment
      server:
        host: "127.0.0.1"
        ports: [80, 443]
      note: |
        two
        lines
      """
    let root = try #require(try Document(text).root)
    let server = try #require(root["server"])
    #expect(root.mapping?.map(\.key) == ["server", "note"])
    #expect(root.mapping?.first?.location == Location(line: 2, column: 1))
    #expect(server["host"]?.scalar == Scalar("127.0.0.1", style: .quoted))
    #expect(server["host"]?.location == Location(line: 3, column: 9))
    #expect(server["ports"]?.sequence?.map { $0.scalar?.text } == ["80", "443"])
    #expect(server["ports"]?.sequence?[1].location == Location(line: 4, column: 15))
    #expect(root["note"]?.scalar == Scalar("two\nlines", style: .block))
  }

  @Test(
    "a YAML document without content has no root", arguments: ["", "# only a comment\n", "\n\n"])
  func empty(text: String) throws {
    #expect(try Document(text).root == nil)
  }

  @Test(
    "a YAML document resolves the type of a scalar",
    arguments: [
      ("null", .null), ("~", .null), ("", .null), ("'null'", .string), ("true", .boolean),
      ("FALSE", .boolean), ("yes", .string), ("12", .integer), ("-3", .integer), ("0x1F", .integer),
      ("0xfg", .string), ("0o17", .integer), ("0o8", .string), ("1.5", .float), ("1e3", .float),
      (".5", .float), ("1.", .float), (".", .string), ("-x", .string), (".inf", .float),
      ("-.inf", .float), (".nan", .float), ("1e", .string), ("1.2.3", .string), ("10s", .string),
      ("\"12\"", .string), ("!!str 12", .string), ("! 12", .string), ("!!int '12'", .integer),
      ("+", .string), ("+5", .integer),
    ] as [(String, Scalar.Kind)])
  func kinds(text: String, kind: Scalar.Kind) throws {
    let root = try #require(try Document("key: \(text)").root)
    #expect(root["key"]?.scalar?.kind == kind)
  }

  @Test(
    "a YAML document with a mistake is refused with line and column",
    arguments: [
      ("a: 1\nb: 2\na: 3", .duplicateKey(first: Location(line: 1, column: 1)), 3, 1, ["a"]),
      (
        "x:\n  a: 1\n  'a': 2", .duplicateKey(first: Location(line: 2, column: 3)), 3, 3,
        ["x", "a"]
      ),
      ("a: &x 1\nb:\n - *x", .alias(name: "x"), 3, 4, ["b", "[0]"]),
      ("a: 1\n---\nb: 2", .severalDocuments, 2, 1, []),
      ("a: !!binary aGk=", .unknownTag("tag:yaml.org,2002:binary"), 1, 4, ["a"]),
      ("a: !mine {b: c}", .unknownTag("!mine"), 1, 4, ["a"]),
      ("a: !mine [b]", .unknownTag("!mine"), 1, 4, ["a"]),
      ("? [a, b]\n: c", .keyNotScalar, 1, 3, []),
    ] as [(String, YAMLError.Reason, Int, Int, [String])])
  func mistakes(
    text: String, reason: YAMLError.Reason, line: Int, column: Int, path: [String]
  ) {
    let expected = YAMLError(reason, at: Location(line: line, column: column), path: path)
    #expect(throws: expected) { try Document(text) }
  }

  @Test(
    "a text that is not YAML is refused with the place of the error",
    arguments: [
      ("a: [1, 2\n", 2, 1), ("a: 1\n\tb: 2", 2, 1), ("a: 'x", 1, 6), ("a: b: c", 1, 5),
      ("a: 1\nb: \u{0}", 2, 4), ("ä: 1\nü: \u{7}", 2, 4), ("a: %x", 1, 4), ("}", 1, 1),
    ])
  func syntax(text: String, line: Int, column: Int) {
    let error = #expect(throws: YAMLError.self) { try Document(text) }
    #expect(error?.location == Location(line: line, column: column))
    if case .syntax = error?.reason {} else { Issue.record("\(String(describing: error))") }
  }

  @Test("a YAML document reports all mistakes until one that ends the parsing")
  func all() {
    let text = "a: *x\na: 1\nb: !t 2\nc: [\n"
    let document = Document(reading: Array(text.utf8))
    #expect(document.mistakes.map(\.location.line) == [1, 2, 3, 5])
    #expect(document.root == nil)
  }
}
