import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An incomplete or broken JPEG")
struct BrokenJPEGTests {
  static let cut = [
    "small.jpg", "small-progressive.jpg", "grey.jpg", "restart.jpg", "arithmetic.jpg",
    "scans.jpg", "arithmetic-progressive.jpg", "cmyk.jpg",
  ]

  @Test("a JPEG that is cut anywhere is cut short", arguments: cut)
  func cutShort(name: String) {
    let whole = Fixtures.image(name)
    // Only EOI may be missing. With arithmetic coding not even that, because missing bits would not be noticed.
    let firstWhole = whole.count - (name.hasPrefix("arithmetic") ? 0 : 2)
    for count in 1..<firstWhole {
      let pieces = count % 3 == 0 ? 1 : count % 3 == 1 ? 50 : .max
      let decoding = Decoding(Array(whole.prefix(count)), pieces: pieces)
      #expect(decoding.error == .cutShort, "\(count) bytes")
    }
    for count in firstWhole..<whole.count {
      #expect(Decoding(Array(whole.prefix(count))).description == Decoding(whole).description)
    }
  }

  @Test(
    "a JPEG that ends within a second frame header has no preview by that header", arguments: 0...10
  )
  func otherFrame(cut: Int) throws {
    let jpeg = JPEGFixture(Fixtures.image("small-progressive.jpg"))
    let scans = jpeg.segments.indices.filter { jpeg.segments[$0].marker == 0xDA }
    try #require(scans.count > 1)
    let start = jpeg.segments[..<scans[1]].reduce(0) { $0 + $1.bytes.count }
    // 16 by 20,000 pixels, without the number of components.
    let other: [UInt8] = [0xFF, 0xC2, 0, 17, 8, 0, 16, 0x4E, 0x20, 3, 1].dropLast(cut)
    let bytes = Array(jpeg.bytes.prefix(start)) + other
    let reader = try #require(jpeg_reader_create(.max))
    defer { jpeg_reader_destroy(reader) }
    var (at, hasEnded, picture) = (0, false, CodecImageInfo())
    while !hasEnded {
      let step = bytes[at...].withUnsafeBufferPointer {
        jpeg_reader_step(reader, $0.baseAddress, $0.count, false)
      }
      at += step.consumed
      if step.status == .header {
        picture = jpeg_reader_picture(reader)
        jpeg_reader_allow_scans(reader, 100)
      }
      hasEnded = step.status == .needsBytes || step.status == .failed
    }
    jpeg_reader_request_preview(reader, 1)
    _ = jpeg_reader_step(reader, nil, 0, false)
    let now = jpeg_reader_picture(reader)
    #expect(now.width == picture.width && now.height == picture.height)
    let error = Decoding(bytes).error
    #expect(error != nil && Decoding(bytes, pieces: 1).error == error)
  }

  @Test("a JPEG with an EOI in the middle is broken", arguments: cut.prefix(4))
  func earlyEnd(name: String) throws {
    let jpeg = JPEGFixture(Fixtures.image(name))
    let scan = try #require(jpeg.index(of: 0xDA))
    let start = jpeg.segments[..<scan].reduce(0) { $0 + $1.bytes.count } + 20
    for count in start..<(jpeg.bytes.count - 4) {
      let decoding = Decoding(Array(jpeg.bytes.prefix(count)) + [0xFF, 0xD9])
      // Between two scans of a progressive image, an EOI is legal.
      #expect(decoding.isBroken || name == "small-progressive.jpg", "\(count) bytes")
    }
  }

  @Test("a JPEG without its tables, data, height or frame header is broken")
  func missing() {
    for marker in [0xDB, 0xC4, 0xC0, 0xDA] as [UInt8] {
      var jpeg = JPEGFixture(Fixtures.jpeg)
      jpeg.segments.removeAll { $0.marker == marker }
      // Standard Huffman tables are assumed if there are none, as for Motion-JPEG.
      #expect(Decoding(jpeg.bytes).isBroken || marker == 0xC4, "marker \(marker)")
    }
    var jpeg = JPEGFixture(Fixtures.jpeg)
    jpeg.resize(width: 480, height: 0)
    // Height by DNL, after the scan.
    jpeg.segments.insert(
      .init(marker: 0xDC, bytes: JPEGFixture.segment(0xDC, [1, 64])), at: jpeg.segments.count - 1)
    #expect(Decoding(jpeg.bytes).isBroken)
    #expect(Decoding([0xFF, 0xD8, 0xFF, 0xD9]).isBroken)
  }

  @Test("a JPEG without a scan for one component is broken")
  func missingComponent() throws {
    var jpeg = JPEGFixture(Fixtures.image("scans.jpg"))
    jpeg.segments.remove(at: try #require(jpeg.segments.lastIndex { $0.marker == 0xDA }))
    #expect(Decoding(jpeg.bytes).isBroken)
  }

  @Test("a baseline JPEG with an additional scan is broken")
  func extraScan() {
    var jpeg = JPEGFixture(Fixtures.jpeg)
    jpeg.repeatLastScan(times: 1)
    #expect(Decoding(jpeg.bytes).isBroken)
  }

  @Test("a JPEG with a restart marker out of order is broken")
  func restartOrder() throws {
    var bytes = Fixtures.image("restart.jpg")
    let marker = try #require(bytes.indices.first { bytes[$0] == 0xFF && bytes[$0 + 1] == 0xD3 })
    bytes[marker + 1] = 0xD6
    #expect(Decoding(bytes).isBroken)
  }

  @Test("a JPEG in a process that the library does not decode is unsupported")
  func unsupported() throws {
    var jpeg = JPEGFixture(Fixtures.jpeg)
    let frame = try #require(jpeg.index(of: 0xC0))
    jpeg.segments[frame].bytes[1] = 0xC3
    guard case .unsupportedFormat(let name?) = Decoding(jpeg.bytes).error else {
      Issue.record("a lossless JPEG was accepted")
      return
    }
    #expect(name.hasPrefix("JPEG ("))
    jpeg.segments[frame].bytes[1] = 0xC1
    jpeg.segments[frame].bytes[4] = 12
    guard case .unsupportedFormat = Decoding(jpeg.bytes).error else {
      Issue.record("12 bits per sample were accepted")
      return
    }
  }

  @Test("a JPEG with an endless run of fill bytes is broken")
  func fillBytes() {
    var jpeg = JPEGFixture(Fixtures.jpeg)
    jpeg.insert([UInt8](repeating: 0xFF, count: 2_000_000))
    for size in [1400, .max] {
      #expect(Decoding(jpeg.bytes, pieces: size).isBroken)
    }
  }
}

@Suite("A JPEG with oddities that occur in valid files")
struct OddJPEGTests {
  @Test(
    "a JPEG with harmless oddities is accepted",
    arguments: [
      [UInt8](repeating: 0xFF, count: 300),
      JPEGFixture.segment(0xFE, Array(repeating: 65, count: 60_000)),
      JPEGFixture.segment(0xE0, Array("JFIF\0".utf8) + [9, 9, 0, 0, 1, 0, 1, 0, 0]),
      JPEGFixture.segment(0xEE, Array("Adobe".utf8) + [0, 100, 0, 0, 0, 0, 7]),
      JPEGFixture.segment(0xE1, []), JPEGFixture.segment(0xE1, Array("Exif\0\0".utf8)),
      JPEGFixture.segment(0xE2, Array("MPF\0".utf8)),
      Array(
        repeatElement(JPEGFixture.segment(0xE1, Array("Exif\0\0MM".utf8)), count: 5000).joined()),
    ])
  func taken(inserted: [UInt8]) {
    var jpeg = JPEGFixture(Fixtures.jpeg)
    jpeg.insert(inserted)
    for size in [100, .max] {
      let decoding = Decoding(jpeg.bytes, pieces: size)
      #expect(decoding.description != nil, "\(decoding.result)")
    }
  }

  @Test(
    "a JPEG may have 4 KiB of other bytes before EOI and 512 before other markers",
    arguments: ["photo.jpg", "photo-progressive.jpg"])
  func padding(name: String) throws {
    let jpeg = JPEGFixture(Fixtures.image(name))
    let expected = try #require(Decoding(jpeg.bytes).description)
    func padded(_ count: Int, before marker: UInt8) throws -> Decoding {
      var jpeg = jpeg
      let index = try #require(jpeg.segments.lastIndex { $0.marker == marker })
      let padding = (0..<count).map { UInt8(truncatingIfNeeded: $0) & 0x7F }
      jpeg.segments.insert(.init(marker: 0, bytes: padding), at: index)
      return Decoding(jpeg.bytes, pieces: 1000)
    }
    for count in [1, 600, 4090] {
      #expect(try padded(count, before: 0xD9).description == expected, "\(count)")
    }
    #expect(try padded(4200, before: 0xD9).isBroken)
    guard name != "photo.jpg" else { return }
    #expect(try padded(500, before: 0xDA).description == expected)
    #expect(try padded(600, before: 0xDA).isBroken)
  }

  /// The file with other bytes before every third restart marker.
  private static func padded(_ whole: [UInt8], by count: Int) -> [UInt8] {
    var (file, markers) = ([UInt8](), 0)
    for index in whole.indices {
      if whole[index] == 0xFF, index + 1 < whole.count, 0xD0...0xD7 ~= whole[index + 1] {
        if markers % 3 == 0 { file += [UInt8](repeating: 0x12, count: count) }
        markers += 1
      }
      file.append(whole[index])
    }
    #expect(markers > 3)
    return file
  }

  @Test("a JPEG with arithmetic coding may have no other bytes before restart markers")
  func arithmeticRestart() {
    let whole = Fixtures.image("arithmetic-restart.jpg")
    #expect(Decoding(Self.padded(whole, by: 0)).description != nil)
    for count in [6, 12, 100] { #expect(Decoding(Self.padded(whole, by: count)).isBroken) }
  }

  @Test(
    "a JPEG may have up to 32 other bytes before restart markers in sequence",
    arguments: ["restart.jpg", "progressive-restart.jpg"])
  func restartPadding(name: String) throws {
    let whole = Fixtures.image(name)
    let expected = try #require(Decoding(whole).description)
    func padded(_ count: Int) -> [UInt8] { Self.padded(whole, by: count) }
    for count in [6, 12, 30] {
      for pieces in [1, 100, .max] {
        #expect(Decoding(padded(count), pieces: pieces).description == expected, "\(count)")
      }
      let made = try Rendered(padded(count), as: Variant(.png)).result.get()
      #expect(try made == Rendered(whole, as: Variant(.png)).result.get())
    }
    #expect(Decoding(padded(40)).isBroken)
    // Restart markers out of sequence are damage, with or without other bytes.
    for count in [0, 6] {
      var file = padded(count)
      let marker = try #require(
        file.indices.first { file[$0] == 0xFF && file[$0 + 1] == 0xD1 })
      file[marker + 1] = 0xD4
      #expect(Decoding(file).isBroken, "\(count)")
    }
  }

  @Test(
    "a JPEG in several scans may lack EOI once no later scan could add anything",
    arguments: [1, 64, .max])
  func scansWithoutEnd(pieces: Int) throws {
    for name in ["progressive.jpg", "progressive-grey.jpg", "progressive-restart.jpg", "scans.jpg"]
    {
      let jpeg = JPEGFixture(Fixtures.image(name))
      let expected = try #require(Decoding(jpeg.bytes).description)
      var cut = jpeg
      cut.segments.removeLast()
      #expect(Decoding(cut.bytes, pieces: pieces).description == expected, "\(name)")
      #expect(Decoding(cut.bytes + [0xFF], pieces: pieces).description == expected, "\(name)")
      // Bits of the last block are missing.
      for lost in 1...3 {
        let decoding = Decoding(Array(cut.bytes.dropLast(lost)), pieces: pieces)
        #expect(decoding.error == .cutShort, "\(name) \(lost): \(decoding.result)")
      }
      // One of the scans is missing.
      let scans = cut.segments.indices.filter { cut.segments[$0].marker == 0xDA }
      for scan in scans {
        var fewer = cut
        fewer.segments.remove(at: scan)
        #expect(Decoding(fewer.bytes, pieces: pieces).description == nil, "\(name) \(scan)")
      }
    }
  }
}
