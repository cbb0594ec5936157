import Codec
import Jobs
import TestSupport

extension Decoding {
  /// Decodes in this process.
  init(
    _ bytes: [UInt8], pieces size: Int = .max, limits: DecodeLimits = DecodeLimits(),
    variants wanted: [Variant] = []
  ) {
    self.init(
      bytes, by: StreamingCodec(), pieces: size, limits: limits,
      variants: wanted.map { VariantRequest($0) })
  }
}
