/// A PNG built chunk by chunk, so that each chunk can be invalid.
package struct PNGFixture: Sendable {
  /// In pixels.
  package var width: UInt32
  /// In pixels.
  package var height: UInt32
  /// 1, 2, 4, 8 or 16.
  package var depth: UInt8 = 8
  /// 0 grey, 2 RGB, 3 palette, 4 grey with alpha, 6 RGB with alpha.
  package var colourType: UInt8 = 2
  /// Whether pixels are stored in the seven passes of Adam7.
  package var isInterlaced = false
  /// Chunks between IHDR and the image data.
  package var before: [[UInt8]] = []
  /// Chunks between the image data and IEND.
  package var after: [[UInt8]] = []

  /// An image of 8-bit RGB.
  package init(width: UInt32, height: UInt32) {
    self.width = width
    self.height = height
  }

  /// The 15 valid pairs of color type and depth.
  package static let kinds: [(colourType: UInt8, depth: UInt8)] =
    [1, 2, 4, 8, 16].map { (0, $0) } + [8, 16].map { (2, $0) } + [1, 2, 4, 8].map { (3, $0) }
    + [8, 16].map { (4, $0) } + [8, 16].map { (6, $0) }

  /// The whole file.
  package var bytes: [UInt8] { start + Self.chunk("IDAT", Self.zlib(rows)) + end }

  /// Signature, IHDR, PLTE if required, and ``before``.
  package var start: [UInt8] {
    let palette = colourType == 3 ? Self.chunk("PLTE", Array(repeating: 7, count: 6)) : []
    return Self.signature + Self.chunk("IHDR", header) + palette + before.flatMap { $0 }
  }

  /// ``after`` and IEND.
  package var end: [UInt8] { after.flatMap { $0 } + Self.chunk("IEND", []) }

  /// The content of IHDR.
  package var header: [UInt8] {
    Self.big(width) + Self.big(height) + [depth, colourType, 0, 0, isInterlaced ? 1 : 0]
  }

  /// The rows of each pass: filter type 0, then zeros.
  package var rows: [UInt8] {
    passes.flatMap { pass in
      let row = [UInt8](repeating: 0, count: 1 + (pass.width * bitsPerPixel + 7) / 8)
      return pass.width == 0 ? [] : (0..<pass.height).flatMap { _ in row }
    }
  }

  private var passes: [(width: Int, height: Int)] {
    let (width, height) = (Int(width), Int(height))
    guard isInterlaced else { return [(width, height)] }
    let starts =
      [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
      + [(0, 1, 1, 2)]
    return starts.map { x, y, across, down in
      ((width - x + across - 1) / across, (height - y + down - 1) / down)
    }
  }

  private var bitsPerPixel: Int {
    let channels = [0: 1, 2: 3, 3: 1, 4: 2, 6: 4][colourType] ?? 1
    return channels * Int(depth)
  }

  /// The eight bytes that every PNG starts with.
  package static let signature: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]

  /// Length, type, content, checksum.
  package static func chunk(_ type: String, _ content: [UInt8]) -> [UInt8] {
    let checked = Array(type.utf8) + content
    return big(UInt32(content.count)) + checked + big(crc32(checked))
  }

  /// A zlib stream of stored blocks.
  package static func zlib(_ content: [UInt8]) -> [UInt8] {
    var stream: [UInt8] = [0x78, 0x01]
    var rest = content[...]
    repeat {
      let block = rest.prefix(65_535)
      rest = rest.dropFirst(65_535)
      let count = UInt16(block.count)
      stream += [rest.isEmpty ? 1 : 0, UInt8(count & 255), UInt8(count >> 8)]
      stream += [UInt8(~count & 255), UInt8(~count >> 8)]
      stream += block
    } while !rest.isEmpty
    return stream + big(adler32(content))
  }

  /// Four bytes, highest first.
  package static func big(_ value: UInt32) -> [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: value >> $0) }
  }

  /// The CRC-32 of bytes (ISO 3309).
  package static func crc32(_ bytes: [UInt8]) -> UInt32 {
    ~bytes.reduce(~0) { sum, byte in
      (0..<8).reduce(sum ^ UInt32(byte)) { sum, _ in sum >> 1 ^ (sum & 1 == 1 ? 0xEDB8_8320 : 0) }
    }
  }

  private static func adler32(_ bytes: [UInt8]) -> UInt32 {
    let (a, b) = bytes.reduce((UInt32(1), UInt32(0))) { sums, byte in
      let a = (sums.0 + UInt32(byte)) % 65_521
      return (a, (sums.1 + a) % 65_521)
    }
    return b << 16 | a
  }
}
