internal import CCodings
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

/// Decodes gzip (RFC 1952) and deflate, both with zlib.
final class Inflater: CodingDecoder {
  // zlib keeps a pointer to this structure, so it must not move.
  private let stream: UnsafeMutablePointer<z_stream>
  private let isGzip: Bool
  private var isBegun = false

  init(isGzip: Bool) {
    self.isGzip = isGzip
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
  }

  deinit {
    inflateEnd(stream)
    stream.deallocate()
  }

  func decode(
    _ input: UnsafeBufferPointer<UInt8>, into output: UnsafeMutableBufferPointer<UInt8>
  ) throws(BrokenCoding) -> CodingStep {
    if !isBegun, let first = input.first { try begin(with: first) }
    stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
    stream.pointee.avail_in = UInt32(input.count)
    stream.pointee.next_out = output.baseAddress
    stream.pointee.avail_out = UInt32(output.count)
    let code = inflate(stream, Z_NO_FLUSH)
    // Z_BUF_ERROR: zlib needs more input or more output space.
    guard [Z_OK, Z_STREAM_END, Z_BUF_ERROR].contains(code) else { throw BrokenCoding() }
    return CodingStep(
      consumed: input.count - Int(stream.pointee.avail_in),
      produced: output.count - Int(stream.pointee.avail_out), isEnd: code == Z_STREAM_END)
  }

  /// The coding named deflate is zlib's format (RFC 1950), but some origins send bare deflate (RFC 1951). The
  /// first byte distinguishes them: read as bare deflate, a zlib header would begin a stored block with a bit
  /// set that encoders leave clear.
  private func begin(with first: UInt8) throws(BrokenCoding) {
    let largest = MAX_WBITS
    let isZlib = first & 0x0F == 8 && first >> 4 <= 7
    let bits = isGzip ? largest + 16 : isZlib ? largest : -largest
    guard CCodings_inflateInit(stream, bits) == Z_OK else { throw BrokenCoding() }
    isBegun = true
  }

  /// Whether another gzip member follows (RFC 1952 section 2.2): all members begin with the same byte.
  func continues(with byte: UInt8) -> Bool {
    isGzip && byte == 0x1F && inflateReset(stream) == Z_OK
  }
}

/// Decodes `br` (RFC 7932). libbrotli refuses windows above the RFC's 16 MiB by default.
final class BrotliDecoder: CodingDecoder {
  private let state: OpaquePointer?

  init() { state = BrotliDecoderCreateInstance(nil, nil, nil) }

  deinit { BrotliDecoderDestroyInstance(state) }

  func decode(
    _ input: UnsafeBufferPointer<UInt8>, into output: UnsafeMutableBufferPointer<UInt8>
  ) throws(BrokenCoding) -> CodingStep {
    guard let state else { throw BrokenCoding() }
    var (inputLeft, outputLeft) = (input.count, output.count)
    var (next, room) = (input.baseAddress, output.baseAddress)
    let result = BrotliDecoderDecompressStream(
      state, &inputLeft, &next, &outputLeft, &room, nil)
    guard result != BROTLI_DECODER_RESULT_ERROR else { throw BrokenCoding() }
    return CodingStep(
      consumed: input.count - inputLeft, produced: output.count - outputLeft,
      isEnd: result == BROTLI_DECODER_RESULT_SUCCESS)
  }

  func continues(with byte: UInt8) -> Bool { false }
}
