/// A text read as one YAML 1.2 document, within limits, since the text may be anyone's.
public struct Document: Sendable, Equatable {
  /// What is read at most.
  public struct Limits: Sendable, Equatable {
    /// Bytes of the text. 1 MiB.
    public var bytes = 1 << 20
    /// Sequences and mappings within each other. 32.
    public var depth = 32
    /// Scalars, sequences and mappings in all, keys too. 100,000.
    public var nodes = 100_000

    /// The defaults.
    public init() {}
  }

  /// The document's node; nil where the text is empty (or only comments), or broken off by a
  /// mistake that nothing can be read behind.
  public let root: Node?
  /// Everything wrong with it, in the order it stands there.
  public let mistakes: [YAMLError]

  /// Reads a text and goes on where it can: a duplicate key (the first one stays), an alias or an
  /// unknown tag (both read as null) are noted, so that one reading tells all mistakes.
  public init(reading text: [UInt8], limits: Limits = Limits()) {
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

  /// Reads a text that has no mistake.
  ///
  /// - Throws: the first mistake.
  public init(_ text: String, limits: Limits = Limits()) throws(YAMLError) {
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
