/// A GIF file with four colors, written code by code.
package struct GIFFixture {
  /// One frame.
  package struct Frame: Sendable {
    /// The frame's rectangle on the canvas, in pixels.
    package var left = 0, top = 0, width: Int, height: Int
    /// The minimum code size: 2 for four colors. Codes then have three bits until the table grows.
    package var codeSize = 2
    /// LZW codes; nil for as many zeros as there are pixels.
    package var codes: [Int]?
    /// Whether rows are stored in four interlaced passes.
    package var isInterlaced = false
    /// A local table of four colors; empty to use the file's.
    package var table: [UInt8] = []
    /// Extensions before the frame.
    package var control: [UInt8] = []

    /// A frame of the first color.
    package init(left: Int = 0, top: Int = 0, width: Int, height: Int) {
      (self.left, self.top, self.width, self.height) = (left, top, width, height)
    }

    fileprivate var bytes: [UInt8] {
      let places = [left, top, width, height].flatMap(GIFFixture.short)
      let data = GIFFixture.packed(codes ?? GIFFixture.zeros(min(width * height, 1000)))
      let flags: UInt8 = (isInterlaced ? 0x40 : 0) | (table.isEmpty ? 0 : 0x81)
      return control + [0x2C] + places + [flags] + table + [UInt8(codeSize)]
        + GIFFixture.blocks(data)
    }
  }

  /// The size of the canvas in pixels.
  package var width: Int, height: Int
  /// Bytes before the first frame.
  package var before: [UInt8] = []
  /// The frames in order.
  package var frames: [Frame]

  /// One frame that fills the canvas.
  package init(width: Int, height: Int) {
    (self.width, self.height) = (width, height)
    frames = [Frame(width: width, height: height)]
  }

  /// The file.
  package var bytes: [UInt8] {
    Array("GIF89a".utf8) + Self.short(width) + Self.short(height) + [0x81, 0, 0]
      + [0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255]
      + before + frames.flatMap(\.bytes) + [0x3B]
  }

  /// The codes of `count` indices 0, with clear codes so that the table does not grow.
  package static func zeros(_ count: Int) -> [Int] {
    codes(Array(repeating: 0, count: count))
  }

  /// The codes of indices below four.
  package static func codes(_ indices: [Int]) -> [Int] {
    indices.enumerated().flatMap { $0.isMultiple(of: 2) ? [4, $1] : [$1] } + [5]
  }

  /// An extension that makes an index transparent in the next frame.
  package static func transparent(_ index: UInt8) -> [UInt8] { [0x21, 0xF9, 4, 1, 0, 0, index, 0] }

  /// An extension with the next frame's disposal, duration and transparent index.
  package static func control(disposal: UInt8, hundredths: Int = 10, clear: UInt8? = nil) -> [UInt8]
  {
    [0x21, 0xF9, 4, disposal << 2 | (clear == nil ? 0 : 1)] + short(hundredths) + [clear ?? 0, 0]
  }

  private static func short(_ value: Int) -> [UInt8] {
    [UInt8(truncatingIfNeeded: value), UInt8(truncatingIfNeeded: value >> 8)]
  }

  /// Packs codes of three bits, lowest bits first.
  private static func packed(_ codes: [Int]) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: (codes.count * 3 + 7) / 8)
    for (index, code) in codes.enumerated() {
      for bit in 0..<3 where code >> bit & 1 == 1 {
        bytes[(3 * index + bit) / 8] |= 1 << ((3 * index + bit) % 8)
      }
    }
    return bytes
  }

  private static func blocks(_ data: [UInt8]) -> [UInt8] {
    stride(from: 0, to: data.count, by: 255).flatMap { start in
      let block = data[start..<min(start + 255, data.count)]
      return [UInt8(block.count)] + block
    } + [0]
  }
}
