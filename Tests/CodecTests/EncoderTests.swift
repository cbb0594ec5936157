import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An encoded image")
struct EncoderTests {
  typealias Open = @convention(c) (UInt32, UInt32, Int32, Int32) -> UnsafeMutablePointer<Encoder>?

  private static let width = 50, height = 33

  /// Red increases to the right, green to the bottom. Alpha is 0 in the left half.
  private static func rows(channels: Int) -> [UInt8] {
    var rows: [UInt8] = []
    for y in 0..<height {
      for x in 0..<width {
        rows += [UInt8(x * 5), UInt8(y * 7), 99]
        if channels == 4 { rows.append(x < width / 2 ? 0 : 255) }
      }
    }
    return rows
  }

  private static func encode(
    _ open: Open, channels: Int, quality: Int32, rowsAtOnce: Int = 8
  ) -> [UInt8]? {
    guard let encoder = open(UInt32(width), UInt32(height), Int32(channels), quality) else {
      return nil
    }
    defer { encoder.pointee.close(encoder) }
    let (pixels, stride) = (rows(channels: channels), width * channels)
    for start in Swift.stride(from: 0, to: height, by: rowsAtOnce) {
      let count = min(rowsAtOnce, height - start)
      let block = Array(pixels[start * stride..<(start + count) * stride])
      guard encoder.pointee.rows(encoder, block, stride, Int32(count)) else { return nil }
    }
    #expect(!encoder.pointee.rows(encoder, pixels, stride, 1))
    guard encoder.pointee.finish(encoder) else { return nil }
    return Array(UnsafeBufferPointer(start: encoder.pointee.bytes, count: encoder.pointee.count))
  }

  @Test(
    "an encoded image has the requested format, size and transparency", arguments: [3, 4],
    [1, 60, 100])
  func sound(channels: Int, quality: Int32) throws {
    for (open, format) in [
      (webp_encoder_open, .webp), (avif_encoder_open, .avif),
    ] as [(Open, ImageFormat)] {
      let file = try #require(Self.encode(open, channels: channels, quality: quality))
      var expected = ImageDescription(format: format, width: Self.width, height: Self.height)
      expected.hasAlpha = channels == 4
      #expect(Decoding(file).description == expected, "\(Decoding(file).result)")
    }
  }

  @Test("an encoded image is larger at higher quality and shows its source")
  func quality() throws {
    for (open, read) in [
      (webp_encoder_open, webp_pixels_open), (avif_encoder_open, avif_pixels_open),
    ] as [(Open, OpenPixels)] {
      let low = try #require(Self.encode(open, channels: 3, quality: 5))
      let high = try #require(Self.encode(open, channels: 3, quality: 95, rowsAtOnce: 1))
      #expect(low.count < high.count)
      #expect(try Self.meanError(of: high, by: read) < 3)
      #expect(try Self.meanError(of: low, by: read) < 30)
    }
  }

  private static func meanError(
    of file: [UInt8], by open: OpenPixels
  ) throws -> Double {
    #expect(Decoding(file).description?.hasAlpha == false)
    let read = ReadPixels(file, by: open, rows: height)
    try #require(read.rgba.count == width * height * 4)
    let pixels = read.rgba.indices.filter { $0 % 4 < 3 }.map { read.rgba[$0] }
    let differences = zip(pixels, rows(channels: 3)).map { abs(Int($0) - Int($1)) }
    return Double(differences.reduce(0, +)) / Double(differences.count)
  }

  @Test("encoding fails for invalid sizes or channels and for missing rows")
  func refused() throws {
    for open in [webp_encoder_open, avif_encoder_open] as [Open] {
      #expect(open(0, 5, 3, 80) == nil && open(5, 16_384, 3, 80) == nil)
      #expect(open(5, 5, 2, 80) == nil && open(5, 5, 3, 101) == nil)
      let encoder = try #require(open(5, 5, 3, 80))
      #expect(!encoder.pointee.finish(encoder))
      encoder.pointee.close(encoder)
    }
    #expect(avif_encoder_open(3001, 3000, 3, 80) == nil)
  }
}
