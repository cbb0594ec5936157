extension PNGFixture {
  /// An interlaced file with 8 bits per channel. A function returns the pixels, with as many bytes as ``colourType`` has channels.
  /// Also returns the offset where each non-empty pass ends.
  package func file(_ pixel: (Int, Int) -> [UInt8]) -> (bytes: [UInt8], passEnds: [Int]) {
    let places =
      isInterlaced
      ? [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
        + [(0, 1, 1, 2)] : [(0, 0, 1, 1)]
    var rows: [UInt8] = []
    var ends: [Int] = []
    for (x, y, across, down) in places {
      let before = rows.count
      for y in stride(from: y, to: Int(height), by: down) where x < Int(width) {
        rows.append(0)
        for x in stride(from: x, to: Int(width), by: across) { rows += pixel(x, y) }
      }
      if rows.count > before { ends.append(rows.count) }
    }
    // Each pass has its own chunks, so that the offset of each byte is known.
    let stream = Self.zlib(rows)
    var file = start
    var written = 0
    let passEnds = ends.map { end in
      // zlib adds two bytes at the start, and five before each stored block.
      let upTo = end == rows.count ? stream.count : 2 + end + 5 * ((end - 1) / 65_535 + 1)
      file += Self.chunk("IDAT", Array(stream[written..<upTo]))
      written = upTo
      return file.count
    }
    return (file + self.end, passEnds)
  }
}

extension JPEGFixture {
  /// The offset where each scan's data ends.
  package var scanEnds: [Int] {
    var count = 0
    return segments.compactMap { segment in
      count += segment.bytes.count
      return segment.marker == 0xDA ? count : nil
    }
  }
}
