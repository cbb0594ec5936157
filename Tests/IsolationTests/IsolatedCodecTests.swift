import Codec
import Foundation
import Glibc
import Jobs
import TestSupport
import Testing

@testable import Isolation

@Suite(
  "Decoding in another process",
  .disabled(if: Sanitizer.isOfThreads, "no decoder was seen to start beside it")
)
struct IsolatedCodecTests {
  private static let codec = IsolatedCodec()
  private static let thumbnail: VariantRequest = {
    var request = VariantRequest(name: "small")
    (request.width, request.height) = (40, 30)
    return request
  }()

  @Test("stands behind a filter and, where the kernel has it, Landlock")
  func layers() throws {
    let layers = try Self.codec.probe().get()
    #expect(layers.hasFilter)
    #expect(layers.landlock == nil || layers.landlock! > 0)
  }

  @Test("tells what the codec in this process tells", arguments: Fixtures.known.map(\.name))
  func same(name: String) {
    let bytes = Fixtures.image(name)
    for pieces in [Int.max, 4_000] {
      let here = Decoding(bytes, by: StreamingCodec(), pieces: pieces, variants: [Self.thumbnail])
      let there = Decoding(bytes, by: Self.codec, pieces: pieces, variants: [Self.thumbnail])
      #expect(here == there)
      #expect(there.error == nil)
    }
  }

  @Test(
    "decodes images that public bug reports describe as the codec in this process does",
    arguments: Fixtures.reported.map(\.name))
  func reported(name: String) throws {
    let image = try #require(Fixtures.reported.first { $0.name == name })
    let here = Decoding(image.bytes, by: StreamingCodec(), variants: [Self.thumbnail])
    let there = Decoding(image.bytes, by: Self.codec, variants: [Self.thumbnail])
    #expect(here == there)
    #expect(there.description == image.description)
  }

  @Test("holds of many small pieces their bytes, however large a buffer each came in")
  func smallPieces() throws {
    let decoder = Self.codec.makeDecoder(limits: DecodeLimits(), variants: [])
    let before = try Self.residentPages()
    for byte in Fixtures.jpeg.prefix(10_000) {
      decoder.append(
        [UInt8](unsafeUninitializedCapacity: 65_536) { buffer, count in
          buffer.initialize(repeating: byte)
          count = 1
        })
    }
    // 655 MB of buffers; what other tests take meanwhile is less.
    #expect(try Self.residentPages() < before + (300 << 20) / 4096)
    withExtendedLifetime(decoder) {}
  }

  private static func residentPages() throws -> Int {
    let numbers = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(
      separator: " ")
    return try #require(Int(numbers[1]))
  }

  @Test("refuses what the codec in this process refuses")
  func refusals() {
    let photo = Fixtures.jpeg
    let limits = DecodeLimits(formats: [.png], maxPixels: 100, maxDimension: 20)
    var small = DecodeLimits()
    small.maxPixels = 100
    let cases: [([UInt8], DecodeLimits)] = [
      (Array(photo.prefix(photo.count / 2)), DecodeLimits()), ([], DecodeLimits()),
      (photo, limits), (photo, small), (Array("<html>".utf8), DecodeLimits()),
      (Array("GIF87a".utf8), DecodeLimits()),
    ]
    for (bytes, limits) in cases {
      let here = Decoding(bytes, by: StreamingCodec(), limits: limits)
      #expect(here.error != nil)
      #expect(here == Decoding(bytes, by: Self.codec, limits: limits))
    }
  }

  @Test(
    "tells the same of bytes that were changed at random",
    arguments: [
      "small.jpg", "small-progressive.jpg", "small.png", "small.webp", "animated.gif", "small.avif",
    ])
  func mutants(name: String) {
    var random = SystemRandomNumberGenerator()
    let (seed, limits) = (Fixtures.image(name), DecodeLimits(maxPixels: 4_000_000))
    for _ in 0..<60 {
      var mutant = seed
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        mutant[Int.random(in: 2..<mutant.count, using: &random)] = .random(in: 0...255)
      }
      let here = Decoding(mutant, by: StreamingCodec(), limits: limits)
      #expect(here == Decoding(mutant, by: Self.codec, limits: limits), "\(mutant)")
    }
  }

  @Test(
    "an image of a risky format that was changed at random ends its own job at the most",
    arguments: [
      "small.jxl", "progressive-lossless.jxl", "animated.jxl", "alpha.heic", "deep.heic",
      "palette.bmp", "old.ico",
    ])
  func mutantsInside(name: String) {
    var random = SystemRandomNumberGenerator()
    let (seed, limits) = (Fixtures.image(name), DecodeLimits(maxPixels: 4_000_000))
    for _ in 0..<60 {
      var mutant = seed
      for _ in 0..<Int.random(in: 1...4, using: &random) {
        mutant[Int.random(in: 2..<mutant.count, using: &random)] = .random(in: 0...255)
      }
      #expect(Decoding(mutant, by: Self.codec, limits: limits).error != .noDecoder, "\(mutant)")
    }
    #expect(Decoding(seed, by: Self.codec).error == nil)
  }

  @Test(
    "without a filter takes no image of a format that needs one, and has no variants of a kept one")
  func withoutFilter() {
    let bare = IsolatedCodec.Layers(hasFilter: false, landlock: 7)
    let held = IsolatedCodec.Layers(hasFilter: true, landlock: nil)
    func formats(by layers: IsolatedCodec.Layers) -> Set<ImageFormat>? {
      let step = DecoderRequest.Step(task: .decode(DecodeLimits(), []), hasEnded: true)
      guard case .decode(let limits, _)? = step.permitted(by: layers)?.task else { return nil }
      return limits.formats
    }
    #expect(formats(by: held) == Set(ImageFormat.allCases))
    #expect(formats(by: bare) == ImageFormat.decodedAnywhere)
    for format in ImageFormat.allCases {
      let image = ImageDescription(format: format, width: 1, height: 1)
      let step = DecoderRequest.Step(task: .render(image, bytes: 9, []), hasEnded: true)
      #expect(step.permitted(by: held) != nil)
      #expect((step.permitted(by: bare) == nil) == ImageFormat.needingIsolation.contains(format))
    }
  }

  @Test(
    "renders what the renderer in this process renders, also what is larger than the shared memory")
  func rendering() throws {
    let bytes = Fixtures.jpeg
    let image = try Decoding(bytes, by: StreamingCodec()).result.get()
    var large = Variant(format: .png)
    (large.width, large.height, large.enlarge) = (1_400, 1_400, true)
    var small = Variant(format: .webp)
    small.width = 50
    let here = try Self.files(StreamingRenderer().render(bytes, of: image, as: [large, small]))
    let there = try Self.files(Self.codec.render(bytes, of: image, as: [large, small]))
    #expect(try here.map { try $0.get() } == there.map { try $0.get() })
    #expect(try there[0].get().count > 1 << 20)
    // Bytes that are no longer that image's.
    #expect(throws: CodecError.self) {
      try Self.files(Self.codec.render(Fixtures.png, of: image, as: [small]))
    }
  }

  @Test(
    "renders images of every format, with a colour profile too",
    arguments: [
      "wide.png", "grey-gamma.png", "icc.jpg", "exif.webp", "animated.gif", "alpha.avif",
      "wide.jxl",
      "grey-gamma.jxl", "alpha.jxl", "animated.jxl", "wide.heic", "grid.heic", "premultiplied.heic",
      "palette.bmp", "small.ico", "old.ico",
    ])
  func renderings(name: String) throws {
    let bytes = Fixtures.image(name)
    let image = try Decoding(bytes, by: StreamingCodec()).result.get()
    var variant = Variant(format: .png)
    variant.width = 20
    let here = try Self.files(StreamingRenderer().render(bytes, of: image, as: [variant]))
    let there = try Self.files(Self.codec.render(bytes, of: image, as: [variant]))
    #expect(try here.map { try $0.get() } == there.map { try $0.get() })
  }

  @Test("lets a large picture's long steps be, as its decoder tells of them in time")
  func longSteps() throws {
    let bytes = Fixtures.image("flat-lossless.webp")
    // Nothing is allowed but what is told.
    let codec = IsolatedCodec { $0.longestStep = .zero }
    let image = try Decoding(bytes, by: codec).result.get()
    #expect(image.width * image.height == 12_000_000)
    let files = try Self.files(codec.render(bytes, of: image, as: [Variant(format: .webp)]))
    #expect(throws: Never.self) { try files[0].get() }
  }

  @Test("renders animations", arguments: ["animated.gif", "animated.webp"])
  func animations(name: String) throws {
    let bytes = Fixtures.image(name)
    let image = try Decoding(bytes, by: StreamingCodec()).result.get()
    var variant = Variant(format: .webp)
    (variant.width, variant.isAnimated) = (20, true)
    let here = try Self.files(StreamingRenderer().render(bytes, of: image, as: [variant]))
    let there = try Self.files(Self.codec.render(bytes, of: image, as: [variant]))
    #expect(try here.map { try $0.get() } == there.map { try $0.get() })
  }

  @Test("makes previews", arguments: [("photo-progressive.jpg", 11_000), ("thumbnail.heic", 900)])
  func previews(name: String, missing: Int) throws {
    let bytes = Fixtures.image(name)
    func preview(_ codec: some ImageCodec) throws -> Preview? {
      let decoder = codec.makeDecoder(limits: DecodeLimits())
      decoder.append(Array(bytes.dropLast(missing)))
      while try decoder.step() != .needsBytes {}
      #expect(decoder.hasMoreToShow)
      decoder.beginPreview()
      while true {
        let step = try decoder.step()
        if let preview = decoder.takePreview() { return preview }
        guard step == .hasMore else { return nil }
      }
    }
    let made = try #require(try preview(Self.codec))
    #expect(try made == preview(StreamingCodec()))
  }

  @Test("an image of many pieces, larger than the shared memory, is decoded as it comes")
  func large() throws {
    let bytes = PNGFixture(width: 900, height: 700).bytes
    #expect(bytes.count > 1 << 20)
    for pieces in [Int.max, 70_000] {
      let there = Decoding(bytes, by: Self.codec, pieces: pieces)
      #expect(there == Decoding(bytes, by: StreamingCodec(), pieces: pieces))
      #expect(there.error == nil)
    }
  }

  @Test("many at once have a process each, and leave some for the next")
  func many() async {
    let codec = IsolatedCodec { $0.mostIdle = 3 }
    let expected = Decoding(Fixtures.smallPNG, by: StreamingCodec())
    await withTaskGroup { group in
      for _ in 0..<40 {
        group.addTask { Decoding(Fixtures.smallPNG, by: codec, pieces: 100) }
      }
      for await there in group { #expect(there == expected) }
    }
  }

  @Test("a photo with a thumbnail goes on behind its header, without a turn for others in between")
  func behindTheHeader() throws {
    func steps() throws -> [DecodeStep] {
      let decoder = Self.codec.makeDecoder(limits: DecodeLimits(), variants: [Self.thumbnail])
      decoder.append(Fixtures.jpeg)
      decoder.end()
      var steps: [DecodeStep] = []
      while true {
        steps.append(try decoder.step())
        if case .finished = steps.last { return steps }
      }
    }
    guard case .header(let header) = try steps().first else {
      Issue.record("no header came first")
      return
    }
    #expect(header.decodingMemory > SharedMemory.smallDecode)
    // A slice that is over has more steps, where the machine is busy.
    let shortest = try (0..<20).map { _ in try steps().count }.min()
    #expect(shortest == 2)
  }

  @Test("in a crowd, what still arrives waits for more of its bytes, and misses nothing")
  func crowd() throws {
    let codec = IsolatedCodec { $0.crowd = 2 }
    let bytes = Fixtures.smallPNG
    let decoders = (0..<4).map { _ in codec.makeDecoder(limits: DecodeLimits()) }
    let first = try decoders.map { decoder in
      decoder.append(Array(bytes.prefix(100)))
      var steps: [DecodeStep] = []
      repeat { steps.append(try decoder.step()) } while steps.last != .needsBytes
      return steps.count
    }
    #expect(first[0] > 1 && first[1] > 1 && first[2] == 1 && first[3] == 1)
    for decoder in decoders {
      decoder.append(Array(bytes.dropFirst(100)))
      decoder.end()
      while true {
        guard case .finished(let image) = try decoder.step() else { continue }
        #expect(image.format == .png)
        break
      }
    }
  }

  @Test("one that is let go in the middle leaves nothing to the next")
  func abandoned() {
    let codec = IsolatedCodec { $0.mostIdle = 1 }
    for _ in 0..<3 {
      let decoder = codec.makeDecoder(limits: DecodeLimits())
      decoder.append(Array(Fixtures.jpeg.prefix(2_000)))
      _ = try? decoder.step()
    }
    #expect(Decoding(Fixtures.smallPNG, by: codec).error == nil)
  }

  @Test("a process is replaced after so many pictures")
  func replaced() {
    let codec = IsolatedCodec { $0.picturesPerProcess = 2 }
    for _ in 0..<7 { #expect(Decoding(Fixtures.smallJPEG, by: codec).error == nil) }
  }

  @Test("without a program there is no decoder, and that is our fault")
  func missing() {
    let codec = IsolatedCodec { $0.program = "/nowhere/imagefetch" }
    let decoded = Decoding(Fixtures.smallJPEG, by: codec)
    #expect(decoded.error == .noDecoder)
    #expect(JobFailure.codec(.noDecoder).isRetryable)
    #expect(throws: IsolatedCodec.ProbeError.self) { try codec.probe().get() }
  }

  private static func files(
    _ rendering: any Rendering
  ) throws(CodecError) -> [Result<[UInt8], CodecError>] {
    while true {
      if let files = try rendering.step() { return files }
    }
  }
}
