internal import CCompressors

/// Bytes with a content coding applied (RFC 9110 section 8.4.1).
package enum Compressed {
  /// One gzip member.
  package static func gzip(_ bytes: [UInt8]) -> [UInt8] { deflated(bytes, windowBits: 15 + 16) }

  /// zlib's format, which HTTP calls deflate.
  package static func deflate(_ bytes: [UInt8]) -> [UInt8] { deflated(bytes, windowBits: 15) }

  /// Raw deflate data without zlib's header, which some origins send as deflate.
  package static func bareDeflate(_ bytes: [UInt8]) -> [UInt8] { deflated(bytes, windowBits: -15) }

  /// Brotli.
  package static func brotli(_ bytes: [UInt8]) -> [UInt8] {
    var size = BrotliEncoderMaxCompressedSize(bytes.count)
    return [UInt8](unsafeUninitializedCapacity: size) { output, count in
      let isDone = BrotliEncoderCompress(
        5, BROTLI_MAX_WINDOW_BITS, BROTLI_MODE_GENERIC, bytes.count, bytes, &size,
        output.baseAddress)
      precondition(isDone == BROTLI_TRUE, "brotli could not compress")
      count = size
    }
  }

  private static func deflated(_ bytes: [UInt8], windowBits: Int32) -> [UInt8] {
    var stream = z_stream()
    precondition(CCompressors_deflateInit(&stream, windowBits) == Z_OK, "zlib could not start")
    defer { deflateEnd(&stream) }
    var bytes = bytes
    let inputSize = UInt32(bytes.count)
    return bytes.withUnsafeMutableBufferPointer { input in
      [UInt8](unsafeUninitializedCapacity: Int(deflateBound(&stream, UInt(inputSize)))) {
        output, count in
        stream.next_in = input.baseAddress
        stream.avail_in = inputSize
        stream.next_out = output.baseAddress
        stream.avail_out = UInt32(output.count)
        precondition(CCompressors.deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib failed")
        count = Int(stream.total_out)
      }
    }
  }
}
