internal import Jobs

/// A content coding that the fetcher can decode (RFC 9110 section 8.4.1). Requests never ask for a coding,
/// but some origins apply one anyway.
enum ContentCoding {
  case gzip, deflate, brotli

  /// The most codings decoded for one response. Each decoder holds a window and may multiply the bytes that
  /// the next one reads.
  static let maxInARow = 3

  /// How a response's content is coded.
  enum Applied {
    /// These codings were applied, in this order.
    case known([ContentCoding])
    /// At least one coding is unknown, so none is decoded. The header is often wrong and the content is a
    /// plain image.
    case unsupported(String)
  }

  static func applied(to head: ResponseHead) -> Applied {
    // A 304 has no content. A part (206) cannot be decoded without the bytes before it.
    guard head.status == 200 || head.status == 203 else { return .known([]) }
    let names = head.fields.contentCodings
    var codings: [ContentCoding] = []
    for name in names {
      guard let coding = ContentCoding(name) else { return .unsupported(name) }
      codings.append(coding)
    }
    // A brotli window takes up to 16 MiB, so a response may use brotli only once.
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

/// Decodes one coding step by step. It never blocks, and a step's cost is proportional to its input and
/// output.
protocol CodingDecoder: AnyObject {
  /// Decodes as much of the input as fits into the output.
  func decode(
    _ input: UnsafeBufferPointer<UInt8>, into output: UnsafeMutableBufferPointer<UInt8>
  ) throws(BrokenCoding) -> CodingStep

  /// Whether the coding continues after its end if this byte follows.
  func continues(with byte: UInt8) -> Bool
}

struct CodingStep {
  var consumed: Int
  var produced: Int
  /// Whether the coding has ended.
  var isEnd: Bool
}

/// The bytes are not valid in this coding.
struct BrokenCoding: Error {}
