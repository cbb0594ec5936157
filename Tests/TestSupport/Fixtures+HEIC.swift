/// A HEIC file that consists only of boxes and a sequence parameter set. Its slices have no pixels.
package struct HEICFixture {
  /// The width in its boxes and its parameter set.
  package var width = 64
  /// The height in its boxes and its parameter set.
  package var height = 64
  /// Slices of the coded image.
  package var slices = 1
  /// The dimensions in the boxes, if they differ from those of the parameter set.
  package var boxSides: (Int, Int)?
  /// Whether the file is a grid of tiles in a row, each the same coded image.
  package var isGrid = false
  /// The width and height of a grid's tile.
  package var tileSide = 64
  /// The number of tiles of a grid.
  package var tiles = 1
  /// The offset of the last tile's bytes; nil for that of the other tiles.
  package var lastTile: Int?
  /// The part of a grid that is shown, from its center; nil for all.
  package var crop: (Int, Int)?

  package init() {}

  package var bytes: [UInt8] {
    let head = Self.box("ftyp", Array("heic\0\0\0\0mif1heic".utf8))
    let start = head.count + meta(start: 0).count + 8
    return head + meta(start: start) + Self.box("mdat", data)
  }

  private var data: [UInt8] {
    let slice: [UInt8] = [0x26, 0x01, 0x00, 0x12, 0x34, 0x56, 0x78]
    return (0..<slices).flatMap { index in
      var slice = slice
      if index == 0 { slice[2] = 0x80 }
      return Self.number(slice.count, 4) + slice
    }
  }

  private func meta(start: Int) -> [UInt8] {
    let sides = boxSides ?? (width, height)
    let coded = isGrid ? (tileSide, tileSide) : sides
    func sidesBox(_ sides: (Int, Int)) -> [UInt8] {
      Self.full("ispe", Self.number(sides.0, 4) + Self.number(sides.1, 4))
    }
    let grid =
      [0, 0, 0, UInt8(tiles - 1)] + Self.number(width & 0xFFFF, 2)
      + Self.number(height & 0xFFFF, 2)
    let primary = isGrid ? 2 : 1
    var infos = Self.full("infe", version: 2, Self.number(1, 2) + [0, 0] + Array("hvc1\0".utf8))
    var places =
      Self.number(1, 2) + [0, 0, 0, 0] + Self.number(1, 2) + Self.number(start, 4)
      + Self.number(data.count, 4)
    var lists = Self.number(1, 2) + [2, 0x81, 2]
    if isGrid {
      infos += Self.full("infe", version: 2, Self.number(2, 2) + [0, 0] + Array("grid\0".utf8))
      places +=
        Self.number(2, 2) + [0, 1, 0, 0] + Self.number(1, 2) + Self.number(0, 4)
        + Self.number(grid.count, 4)
      lists += Self.number(2, 2) + (crop == nil ? [1, 3] : [2, 3, 0x84])
    }
    if let lastTile {
      infos += Self.full("infe", version: 2, Self.number(3, 2) + [0, 0] + Array("hvc1\0".utf8))
      places +=
        Self.number(3, 2) + [0, 0, 0, 0] + Self.number(1, 2) + Self.number(lastTile, 4)
        + Self.number(data.count, 4)
      lists += Self.number(3, 2) + [2, 0x81, 2]
    }
    let count = Self.number(lastTile != nil ? 3 : isGrid ? 2 : 1, 2)
    let properties = Self.box(
      "ipco", Self.box("hvcC", setup(coded)) + sidesBox(coded) + sidesBox(sides) + cropBox)
    return Self.full(
      "meta",
      Self.full("hdlr", Array("\0\0\0\0pict".utf8) + [UInt8](repeating: 0, count: 13))
        + Self.full("pitm", Self.number(primary, 2))
        + Self.full("iloc", version: 1, [0x44, 0] + count + places)
        + Self.full("iinf", count + infos)
        + Self.box("iprp", properties + Self.full("ipma", [0, 0] + count + lists))
        + (isGrid ? Self.box("idat", grid) : [])
        + (isGrid ? Self.full("iref", Self.box("dimg", references)) : []))
  }

  /// References from the grid to its tiles.
  private var references: [UInt8] {
    let items = (1...tiles).map { $0 == tiles && lastTile != nil ? 3 : 1 }
    return [0, 2] + Self.number(tiles, 2) + items.flatMap { Self.number($0, 2) }
  }

  private var cropBox: [UInt8] {
    guard let crop else { return [] }
    let values = [crop.0, 1, crop.1, 1, 0, 1, 0, 1]
    return Self.box("clap", values.flatMap { Self.number($0, 4) })
  }

  /// A decoder configuration record with one sequence parameter set.
  private func setup(_ sides: (Int, Int)) -> [UInt8] {
    var set = BitWriter()
    set.add(0x4201, bits: 16)
    set.add(0, bits: 4)
    set.add(0, bits: 3)
    set.add(1, bits: 1)
    // Profile and level, which decoders ignore. No byte is 0 three times in a row.
    for _ in 0..<12 { set.add(0x5A, bits: 8) }
    set.addCode(0)
    set.addCode(1)
    set.addCode(sides.0)
    set.addCode(sides.1)
    set.add(0, bits: 1)
    set.addCode(0)
    set.addCode(0)
    set.add(1, bits: 1)
    let unit = set.bytes
    return [UInt8](repeating: 1, count: 21) + [3, 1, 0x21] + Self.number(1, 2)
      + Self.number(unit.count, 2) + unit
  }

  private static func number(_ value: Int, _ bytes: Int) -> [UInt8] {
    (0..<bytes).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }

  private static func box(_ type: String, _ content: [UInt8]) -> [UInt8] {
    number(8 + content.count, 4) + Array(type.utf8) + content
  }

  private static func full(_ type: String, version: UInt8 = 0, _ content: [UInt8]) -> [UInt8] {
    box(type, [version, 0, 0, 0] + content)
  }
}

/// Writes bits of an HEVC unit, without emulation prevention bytes.
private struct BitWriter {
  private(set) var bytes: [UInt8] = []
  private var free = 0

  mutating func add(_ value: Int, bits: Int) {
    for bit in (0..<bits).reversed() {
      if free == 0 {
        bytes.append(0)
        free = 8
      }
      free -= 1
      bytes[bytes.count - 1] |= UInt8(value >> bit & 1) << free
    }
  }

  /// An Exp-Golomb code.
  mutating func addCode(_ value: Int) {
    let width = Int.bitWidth - (value + 1).leadingZeroBitCount
    add(0, bits: width - 1)
    add(value + 1, bits: width)
  }
}
