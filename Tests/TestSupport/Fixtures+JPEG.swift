/// A JPEG split into marker segments, so that each can be changed, repeated or removed.
package struct JPEGFixture: Sendable {
  /// One marker with its parameters and, after SOS, the scan's data.
  package struct Segment: Sendable {
    /// The second byte of the marker.
    package var marker: UInt8
    /// The bytes from the marker's FF to the next marker.
    package var bytes: [UInt8]

    /// A segment with its bytes.
    package init(marker: UInt8, bytes: [UInt8]) {
      self.marker = marker
      self.bytes = bytes
    }
  }

  /// The segments from SOI to EOI, in order.
  package var segments: [Segment]

  /// Splits a valid file.
  package init(_ file: [UInt8]) {
    segments = []
    var start = 0
    while start + 1 < file.count {
      let marker = file[start + 1]
      var end = start + 2
      if marker != 0xD8 && marker != 0xD9 {
        end += Int(file[end]) << 8 | Int(file[end + 1])
      }
      if marker == 0xDA {
        while !Self.isMarker(file, at: end) { end += 1 }
      }
      segments.append(Segment(marker: marker, bytes: Array(file[start..<end])))
      start = end
    }
  }

  private static func isMarker(_ file: [UInt8], at index: Int) -> Bool {
    file[index] == 0xFF && file[index + 1] != 0 && !(0xD0...0xD7 ~= file[index + 1])
  }

  /// The file.
  package var bytes: [UInt8] { segments.flatMap(\.bytes) }

  /// The index of the first segment with this marker.
  package func index(of marker: UInt8) -> Int? { segments.firstIndex { $0.marker == marker } }

  /// Inserts bytes after SOI.
  package mutating func insert(_ bytes: [UInt8]) {
    segments.insert(Segment(marker: bytes.count > 1 ? bytes[1] : 0, bytes: bytes), at: 1)
  }

  /// Changes the dimensions in the frame header.
  package mutating func resize(width: UInt16, height: UInt16) {
    guard let frame = segments.firstIndex(where: { 0xC0...0xCF ~= $0.marker && $0.marker != 0xC4 })
    else { return }
    segments[frame].bytes.replaceSubrange(
      5..<9, with: [height, width].flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] })
  }

  /// Repeats the last scan this many times.
  package mutating func repeatLastScan(times: Int) {
    guard let last = segments.lastIndex(where: { $0.marker == 0xDA }) else { return }
    segments.insert(contentsOf: Array(repeating: segments[last], count: times), at: last)
  }

  /// A marker segment including its length.
  package static func segment(_ marker: UInt8, _ content: [UInt8]) -> [UInt8] {
    let length = content.count + 2
    return [0xFF, marker, UInt8(length >> 8), UInt8(length & 255)] + content
  }
}

/// EXIF blocks, valid and unusual.
package enum EXIFFixture {
  /// A TIFF file with one directory that has one entry.
  ///
  /// - Parameter type: 3 SHORT, 4 LONG.
  package static func tiff(
    orientation: UInt16, isBigEndian: Bool, type: UInt16 = 3, directory: UInt32 = 8,
    entries: UInt16 = 1
  ) -> [UInt8] {
    func short(_ value: UInt16) -> [UInt8] {
      let bytes = [UInt8(value >> 8), UInt8(value & 255)]
      return isBigEndian ? bytes : bytes.reversed()
    }
    func long(_ value: UInt32) -> [UInt8] {
      isBigEndian ? PNGFixture.big(value) : PNGFixture.big(value).reversed()
    }
    let start: [UInt8] = isBigEndian ? [0x4D, 0x4D] : [0x49, 0x49]
    let value = type == 4 ? long(UInt32(orientation)) : short(orientation) + [0, 0]
    return start + short(42) + long(directory) + short(entries)
      + short(0x0112) + short(type) + long(1) + value + long(0)
  }

  /// As an APP1 segment.
  package static func app1(_ tiff: [UInt8]) -> [UInt8] {
    JPEGFixture.segment(0xE1, Array("Exif\0\0".utf8) + tiff)
  }
}
