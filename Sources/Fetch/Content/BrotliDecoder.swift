internal import CCodings

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
