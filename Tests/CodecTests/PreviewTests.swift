import Codec
import Jobs
import TestSupport
import Testing

@Suite("A preview")
struct PreviewTests {
  @Test("a progressive JPEG has a sharper preview after each scan")
  func scans() async throws {
    let file = Fixtures.progressiveJPEG
    let ends = JPEGFixture(file).scanEnds
    let run = PreviewRun(file, stops: ends.map { $0 + 4 })
    #expect(run.previews.map(\.scan) == Array(1..<ends.count))
    #expect(run.result?.width == 480)
    let whole = try #require(try await ShownPixels(file))
    var likeness: [Double] = []
    for (preview, shown) in zip(run.previews, try await ShownPixels.of(run.previews.map(\.bytes))) {
      #expect(preview.format == .jpeg)
      let shown = try #require(shown, "scan \(preview.scan)")
      #expect(shown.width == whole.width && shown.height == whole.height)
      #expect(shown.format == "JPEG" && !shown.isProgressive)
      likeness.append(shown.likeness(to: whole))
    }
    // After a scan of a single component, block smoothing can be slightly worse.
    for (earlier, later) in zip(likeness, likeness.dropFirst()) { #expect(later > earlier - 0.5) }
    #expect(likeness[0] > 20 && likeness.last! > likeness[0] + 5, "\(likeness)")
  }

  @Test(
    "a preview of an interlaced PNG shows each complete pass exactly", arguments: [2, 6] as [UInt8])
  func passes(colourType: UInt8) async throws {
    var png = PNGFixture(width: 37, height: 29)
    (png.colourType, png.isInterlaced) = (colourType, true)
    func pixel(_ x: Int, _ y: Int) -> [UInt8] {
      let colour = [x * 6, y * 8, x * y].map { UInt8(truncatingIfNeeded: $0) }
      return colourType == 6 ? colour + [UInt8(255 - x - y)] : colour
    }
    let (file, ends) = png.file(pixel)
    let run = PreviewRun(file, stops: ends)
    #expect(run.previews.map(\.scan) == [1, 2, 3, 4, 5, 6])
    let steps = [(8, 8), (4, 8), (4, 4), (2, 4), (2, 2), (1, 2)]
    let pictures = try await ShownPixels.of(run.previews.map(\.bytes))
    for ((preview, shown), (across, down)) in zip(zip(run.previews, pictures), steps) {
      let shown = try #require(shown, "pass \(preview.scan)")
      #expect(preview.format == .png && shown.format == "PNG")
      var expected: [UInt8] = []
      for y in 0..<29 {
        for x in 0..<37 {
          let known = pixel(x - x % across, y - y % down)
          expected += colourType == 6 ? known : known + [255]
        }
      }
      #expect(shown.pixels == expected, "pass \(preview.scan)")
    }
  }

  @Test("a preview of an interlaced PNG of any kind has its pixels", arguments: PNGFixture.kinds)
  func kinds(kind: (colourType: UInt8, depth: UInt8)) async throws {
    for (width, height) in [(5, 1), (33, 17)] as [(UInt32, UInt32)] {
      var png = PNGFixture(width: width, height: height)
      (png.colourType, png.depth, png.isInterlaced) = (kind.colourType, kind.depth, true)
      let file = png.bytes
      let previews = PreviewRun(file, stops: Array(40..<file.count)).previews
      #expect(previews.count > (width > 8 ? 5 : 0))
      // Every pixel is the same, so each pass shows the whole image.
      let pictures = try await ShownPixels.of([file] + previews.map(\.bytes))
      let whole = try #require(pictures[0])
      for shown in pictures.dropFirst() { #expect(shown?.pixels == whole.pixels) }
    }
  }

  @Test("previews of every kind of JPEG with scans are readable and similar")
  func otherKinds() async throws {
    for (name, description) in Fixtures.known where description.format == .jpeg {
      let file = Fixtures.image(name)
      let run = PreviewRun(
        file, stops: Array(stride(from: 50, to: file.count, by: file.count / 300 + 1)))
      let canShow = description.isProgressive && !name.hasPrefix("arithmetic")
      #expect(run.previews.isEmpty == !canShow, "\(name)")
      guard let last = run.previews.last else { continue }
      let pictures = try await ShownPixels.of([last.bytes, file])
      let shown = try #require(pictures[0], "\(name)")
      let whole = try #require(pictures[1])
      #expect(shown.width == whole.width && shown.height == whole.height)
      #expect(shown.likeness(to: whole) > 20, "\(name)")
    }
  }

  @Test("a baseline JPEG or a non-interlaced PNG has no preview")
  func none() {
    for file in [Fixtures.jpeg, Fixtures.png] {
      #expect(
        PreviewRun(file, stops: Array(stride(from: 1, to: file.count, by: 97))).previews == [])
    }
  }

  @Test("a preview ignores the EXIF thumbnail and 300 kB of segments before the image")
  func preamble() async throws {
    let tiff = EXIFFixture.tiff(orientation: 6, isBigEndian: true)
    let thumbnail = Fixtures.image("small-progressive.jpg")
    let profile = JPEGFixture.segment(
      0xE2, Array("ICC_PROFILE\0".utf8) + .init(repeating: 7, count: 60_000))
    var baseline = JPEGFixture(Fixtures.jpeg)
    var progressive = JPEGFixture(Fixtures.progressiveJPEG)
    for _ in 0..<5 {
      baseline.insert(profile)
      progressive.insert(profile)
    }
    baseline.insert(EXIFFixture.app1(tiff + thumbnail))
    progressive.insert(EXIFFixture.app1(tiff + thumbnail))
    #expect(
      PreviewRun(baseline.bytes, stops: Array(stride(from: 1, to: 323_000, by: 499))).previews == []
    )
    let ends = progressive.scanEnds
    let run = PreviewRun(progressive.bytes, stops: [1000, 100_000, 250_000] + ends.map { $0 + 4 })
    #expect(run.previews.map(\.scan) == Array(1..<ends.count))
    for shown in try await ShownPixels.of(run.previews.map(\.bytes)) {
      let shown = try #require(shown)
      #expect(shown.width == 480 && shown.height == 320 && shown.orientation == 6)
    }
  }

  @Test("a preview of a PNG is turned upright")
  func orientation() async throws {
    var png = PNGFixture(width: 16, height: 16)
    png.isInterlaced = true
    png.before = [PNGFixture.chunk("eXIf", EXIFFixture.tiff(orientation: 8, isBigEndian: false))]
    let (file, ends) = png.file { x, y in [UInt8(x), UInt8(y), 0] }
    let previews = PreviewRun(file, stops: ends).previews
    #expect(previews.count == 6)
    for shown in try await ShownPixels.of(previews.map(\.bytes)) {
      #expect(shown?.orientation == 8)
    }
  }

  @Test("a preview of damaged data does not damage the result further", arguments: 0..<40)
  func damage(seed: Int) {
    var random = Seeded(UInt64(seed))
    for original in [Fixtures.progressiveJPEG, Self.interlaced] {
      var file = original
      for _ in 0..<4 {
        file[.random(in: 200..<file.count, using: &random)] = .random(in: 0...255, using: &random)
      }
      let stops = Array(stride(from: 100, to: file.count, by: 1009))
      let run = PreviewRun(file, stops: stops)
      let plain = Decoding(file, pieces: 1009)
      #expect((run.result == nil) == (plain.description == nil))
      #expect(run.error == plain.error)
    }
  }

  @Test("a preview is discarded once all bytes have arrived", arguments: [true, false])
  func dropped(isStarted: Bool) throws {
    let file = Fixtures.progressiveJPEG
    let decoder = StreamingCodec().makeDecoder(limits: DecodeLimits())
    let first = JPEGFixture(file).scanEnds[1] + 4
    decoder.append(Array(file[..<first]))
    while try decoder.step() != .needsBytes {}
    #expect(decoder.hasMoreToShow)
    decoder.beginPreview()
    decoder.append(Array(file[first...]))
    decoder.finishInput()
    #expect(!decoder.hasMoreToShow)
    if !isStarted { decoder.discardPreview() }
    while case .hasMore = try decoder.step() {}
    #expect(decoder.takePreview() == nil)
    guard case .finished = try decoder.step() else { return #expect(Bool(false), "not finished") }
  }

  @Test("a preview stays within the header's memory and is left out if it would exceed it")
  func memory() throws {
    for (file, ends) in [
      (Fixtures.progressiveJPEG, JPEGFixture(Fixtures.progressiveJPEG).scanEnds.map { $0 + 4 }),
      (Self.interlaced, Array(stride(from: 100, to: Self.interlaced.count, by: 500))),
    ] {
      let needed = try #require(Decoding(file).headers.first).decodingMemory
      let limits = DecodeLimits(maxMemory: needed - 1)
      let plain = try #require(Decoding(file, limits: limits).headers.first)
      #expect(plain.decodingMemory < needed)
      let run = PreviewRun(file, stops: ends, limits: limits)
      #expect(run.result != nil && run.previews == [])
      #expect(PreviewRun(file, stops: ends).previews.count > 3)
    }
  }

  private static let interlaced: [UInt8] = {
    var png = PNGFixture(width: 64, height: 48)
    png.isInterlaced = true
    return png.file { x, y in [UInt8(x * 4), UInt8(y * 5), UInt8(x ^ y)] }.bytes
  }()
}

/// A decode that stops at places in the file, and requests a preview when there is more to show.
struct PreviewRun {
  var previews: [Preview] = []
  var result: ImageDescription?
  var error: CodecError?

  init(_ file: [UInt8], stops: [Int], limits: DecodeLimits = DecodeLimits()) {
    let decoder = StreamingCodec().makeDecoder(limits: limits)
    var start = 0
    do throws(CodecError) {
      for stop in (stops + [file.count]).map({ min($0, file.count) }) {
        decoder.append(Array(file[start..<stop]))
        start = stop
        try run(decoder)
        guard decoder.hasMoreToShow else { continue }
        decoder.beginPreview()
        try run(decoder)
      }
      decoder.finishInput()
      try run(decoder)
    } catch { self.error = error }
  }

  private mutating func run(_ decoder: any ImageDecoder) throws(CodecError) {
    while true {
      let step = try decoder.step()
      if let preview = decoder.takePreview() { previews.append(preview) }
      if case .finished(let description) = step { result = description }
      switch step {
      case .needsBytes, .finished: return
      case .hasMore, .header, .again: continue
      }
    }
  }
}

/// Generates the same numbers every time (SplitMix64).
private struct Seeded: RandomNumberGenerator {
  private var state: UInt64
  init(_ seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = (state ^ state >> 30) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ mixed >> 27) &* 0x94D0_49BB_1331_11EB
    return mixed ^ mixed >> 31
  }
}
