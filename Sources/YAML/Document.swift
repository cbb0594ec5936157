// YAML: parses untrusted YAML text with libyaml.
//
// Input: UTF-8 text. Output: a tree of nodes with their locations, and all mistakes. The files, in reading order:
// `Document` (entry point, limits), `Node` and `Scalar` (the tree), `YAMLError`, `Composer` (builds the tree),
// `EventReader` (libyaml). Parsing is synchronous on the caller's thread.

/// One YAML 1.2 document. Limits apply, because the text is not trusted.
package struct Document: Sendable, Equatable {
  /// Limits of the text.
  package struct Limits: Sendable, Equatable {
    /// Maximum bytes of the text: 1 MiB.
    package var bytes = 1 << 20
    /// Maximum depth of nested sequences and mappings.
    var depth = 32
    /// Maximum number of scalars, sequences and mappings, including keys.
    var nodes = 100_000

    package init() {}
  }

  /// The document's root node. Nil if the text is empty or contains only comments, or if a mistake ended the parsing.
  package let root: Node?
  /// All mistakes, in the order of the text.
  package let mistakes: [YAMLError]

  /// Parses a text and collects as many mistakes as possible.
  ///
  /// After some mistakes parsing continues: a duplicate key (the first one is kept), an alias and an unknown tag (both are
  /// read as null).
  package init(reading text: [UInt8], limits: Limits = Limits()) {
    var mistakes: [YAMLError] = []
    do throws(YAMLError) {
      try Document.check(text, limits)
      var composer = Composer(reader: try EventReader(text), limits: limits)
      defer { mistakes = composer.mistakes }
      root = try composer.document()
    } catch {
      mistakes.append(error)
      root = nil
    }
    self.mistakes = mistakes
  }

  /// Parses a text.
  ///
  /// - Throws: The first mistake, if there is any.
  package init(_ text: String, limits: Limits = Limits()) throws(YAMLError) {
    self.init(reading: Array(text.utf8), limits: limits)
    if let first = mistakes.first { throw first }
  }

  private static func check(_ text: [UInt8], _ limits: Limits) throws(YAMLError) {
    guard text.count <= limits.bytes else {
      throw YAMLError(.tooLarge(limit: limits.bytes), at: Location(line: 1, column: 1))
    }
    if let offset = firstInvalidByte(of: text) {
      throw YAMLError(.invalidUTF8, at: Location(ofByte: offset, in: text))
    }
  }

  private static func firstInvalidByte(of text: [UInt8]) -> Int? {
    var decoder = UTF8()
    var bytes = text.makeIterator()
    var offset = 0
    while true {
      switch decoder.decode(&bytes) {
      case .scalarValue(let scalar): offset += UTF8.width(scalar)
      case .emptyInput: return nil
      case .error: return offset
      }
    }
  }
}
