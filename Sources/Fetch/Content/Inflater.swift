internal import CCodings

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
