import Foundation
import Testing

/// Swift 6.3.1 with -O miscompiles a tuple if a later element contains `await` and a task's closure returns
/// the tuple from inside do/catch: an element before the `await` is lost. `StoreMove.swift` has details.
/// Debug builds, and therefore most tests, are not affected.
@Suite("Tuples in the sources")
struct MiscompiledTupleTests {
  @Test("no tuple in the sources has an await after its first element")
  func sources() throws {
    let files = FileManager.default.enumerator(atPath: Readme.root + "Sources")
    let names = try #require(files).compactMap { $0 as? String }.filter { $0.hasSuffix(".swift") }
    #expect(names.count > 300)
    for name in names {
      let found = Self.suspendedTuples(in: Readme.file("Sources/" + name))
      #expect(found.isEmpty, "\(name): await the element into a constant before the tuple")
    }
  }

  @Test("the check finds such tuples in every position, and nothing else")
  func found() {
    for text in [
      "return (name, .success(try await load(a, b)))", "let (a, b) = (name(), await load())",
      "{ (\n  name,\n  await load()\n) }", "[(1, await load())]", "(a, (b, await load()))",
    ] { #expect(Self.suspendedTuples(in: text).count == 1, "\(text)") }
    for text in [
      "return (try await load(), name)", "load(a, await other())", "// (a, await b)",
      "(a, { await load() })", "S(a: a, b: await load())", "for (a, b) in await all() {}",
    ] { #expect(Self.suspendedTuples(in: text).isEmpty, "\(text)") }
  }

  /// Returns the innermost tuples with such an `await`.
  private static func suspendedTuples(in text: String) -> [String] {
    let code = text.split(separator: "\n", omittingEmptySubsequences: false)
      .filter { !$0.drop(while: { $0 == " " }).hasPrefix("//") }.joined(separator: "\n")
    var found: [String] = []
    /// The open brackets: the start, whether it may be a tuple, and the start of its second element.
    var open: [(start: String.Index, isTuple: Bool, second: String.Index?)] = []
    for index in code.indices {
      switch code[index] {
      case "(", "[", "{":
        let isTuple = code[index] == "(" && beginsExpression(code[..<index])
        open.append((index, isTuple, nil))
      case ",":
        if let last = open.last, last.isTuple, last.second == nil {
          open[open.count - 1].second = index
        }
      case ")", "]", "}":
        guard let last = open.popLast(), let second = last.second else { continue }
        let later = String(code[second..<index]).replacing(#/\{[^{}]*\}/#, with: "")
        if later.contains(#/\bawait\b/#), !(found.last.map { later.contains($0) } ?? false) {
          found.append(later)
        }
      default: continue
      }
    }
    return found
  }

  /// Whether a parenthesis after this text begins an expression, and not the arguments of a call or a
  /// declaration.
  private static func beginsExpression(_ text: Substring) -> Bool {
    let before = text.reversed().drop { $0 == " " || $0 == "\n" }
    guard let last = before.first else { return true }
    if last.isLetter || last.isNumber || last == "_" {
      let word = String(before.prefix { $0.isLetter || $0.isNumber || $0 == "_" }.reversed())
      return ["return", "in", "try", "await", "else", "case"].contains(word)
    }
    return "={([,:?&|".contains(last)
  }
}
