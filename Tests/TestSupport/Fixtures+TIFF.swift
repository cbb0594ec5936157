/// A TIFF of one strip, a directory behind it, changed at will; the first byte of an integer is the least.
public struct TIFFFixture {
  /// Values by tag; those that tell of the strip are added.
  public var tags: [Int: [Int]]
  /// What the strip holds.
  public var strip: [UInt8]
  /// Where the next directory is said to be.
  public var next = 0
  /// Entries as they are, behind the others: tag, type, count, value.
  public var more: [(Int, Int, Int, Int)] = []
  /// Where the directory begins.
  public var directory: Int { 8 + strip.count }

  /// Of RGB without codes, all of it one grey.
  public init(width: Int, height: Int) {
    tags = [256: [width], 257: [height], 258: [8, 8, 8], 259: [1], 262: [2], 277: [3]]
    strip = [UInt8](repeating: 0x70, count: 3 * width * height)
  }

  /// Of a JPEG as its strip.
  public init(jpeg: [UInt8], width: Int, height: Int) {
    self.init(width: width, height: height)
    strip = jpeg + [UInt8](repeating: 0, count: jpeg.count % 2)
    (tags[259], tags[262]) = ([7], [6])
  }

  /// The file.
  public var bytes: [UInt8] {
    var all = tags
    if all[322] == nil { all.merge([273: [8], 279: [strip.count]]) { told, _ in told } }
    let behind = directory + 2 + 12 * (all.count + more.count) + 4
    var (entries, values): ([UInt8], [UInt8]) = ([], [])
    for (tag, numbers) in all.sorted(by: { $0.key < $1.key }) {
      let isLong = numbers.contains { $0 > 0xFFFF } || [273, 279, 324, 325].contains(tag)
      let packed = numbers.flatMap { Self.little($0, isLong ? 4 : 2) }
      entries += Self.little(tag, 2) + Self.little(isLong ? 4 : 3, 2)
      entries += Self.little(numbers.count, 4)
      if packed.count > 4 {
        entries += Self.little(behind + values.count, 4)
        values += packed
      } else {
        entries += packed + [UInt8](repeating: 0, count: 4 - packed.count)
      }
    }
    for (tag, type, count, value) in more {
      entries += Self.little(tag, 2) + Self.little(type, 2) + Self.little(count, 4)
      entries += Self.little(value, 4)
    }
    return Array("II".utf8) + [42, 0] + Self.little(directory, 4) + strip
      + Self.little(all.count + more.count, 2) + entries + Self.little(next, 4) + values
  }

  private static func little(_ value: Int, _ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
  }
}
