internal import Jobs

/// A content coding that is undone here (RFC 9110 section 8.4.1). None is ever asked for, but some origins apply one
/// all the same.
enum ContentCoding {
  case gzip, deflate, brotli

  /// Each holds a window, and may blow up what the next one has to read.
  static let maxInARow = 3

  /// How a response's content is coded.
  enum Applied {
    /// These were applied, in that order.
    case known([ContentCoding])
    /// Not all of them can be undone, so none is. Many such names are wrong: the content is an image as it stands.
    case unsupported(String)
  }

  /// Reads the codings of a response's content.
  static func applied(to head: ResponseHead) -> Applied {
    // A 304 has no content, and of a part nothing can be decoded without what comes before it.
    guard head.status == 200 || head.status == 203 else { return .known([]) }
    let names = head.fields.contentCodings
    var codings: [ContentCoding] = []
    for name in names {
      guard let coding = ContentCoding(name) else { return .unsupported(name) }
      codings.append(coding)
    }
    // A brotli window has up to 16 MiB: one a transfer is enough.
    guard codings.count <= maxInARow, codings.count(where: { $0 == .brotli }) <= 1 else {
      return .unsupported(names.joined(separator: ", "))
    }
    return .known(codings)
  }

  private init?(_ name: String) {
    switch name {
    case "gzip", "x-gzip": self = .gzip
    case "deflate": self = .deflate
    case "br": self = .brotli
    default: return nil
    }
  }

  var name: String {
    switch self {
    case .gzip: "gzip"
    case .deflate: "deflate"
    case .brotli: "br"
    }
  }

  func makeDecoder() -> any CodingDecoder {
    switch self {
    case .gzip: Inflater(isGzip: true)
    case .deflate: Inflater(isGzip: false)
    case .brotli: BrotliDecoder()
    }
  }
}

/// Undoes one coding, step by step. Nothing of it blocks, and a step costs no more than the bytes in and out.
protocol CodingDecoder: AnyObject {
  /// Decodes as much of the input as there is room for.
  func decode(
    _ input: UnsafeBufferPointer<UInt8>, into output: UnsafeMutableBufferPointer<UInt8>
  ) throws(BrokenCoding) -> CodingStep

  /// Whether the coding goes on after its end where such a byte follows.
  func goesOn(with byte: UInt8) -> Bool
}

/// What one step did.
struct CodingStep {
  var consumed: Int
  var produced: Int
  /// The coding says that this was all.
  var isEnd: Bool
}

/// The bytes break the coding's rules.
struct BrokenCoding: Error {}
