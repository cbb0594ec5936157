import Codec
import Foundation
import Glibc
import Jobs
import TestSupport
import Testing

@testable import Isolation

@Suite(
  "Decoding in another process",
  .disabled(if: Sanitizer.isOfThreads, "decoders could not start under ThreadSanitizer")
)
struct IsolatedCodecTests {
  private static let codec = IsolatedCodec()
  private static let thumbnail: VariantRequest = {
    var request = VariantRequest(name: "small")
    (request.width, request.height) = (40, 30)
    return request
  }()

  @Test("a decoder process has a seccomp filter and, if supported, Landlock")
  func layers() throws {
    let layers = try Self.codec.probe().get()
    #expect(layers.hasFilter)
    #expect(layers.landlock == nil || layers.landlock! > 0)
  }

  @Test(
    "a decoder process gives the same results as this process",
    arguments: Fixtures.known.map(\.name))
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
    "a decoder process decodes images from bug reports like this process",
    arguments: Fixtures.reported.map(\.name))
  func reported(name: String) throws {
    let image = try #require(Fixtures.reported.first { $0.name == name })
    let here = Decoding(image.bytes, by: StreamingCodec(), variants: [Self.thumbnail])
    let there = Decoding(image.bytes, by: Self.codec, variants: [Self.thumbnail])
    #expect(here == there)
    #expect(there.description == image.description)
  }

  @Test("many small pieces take only their bytes, however large their buffers are")
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
    // The buffers are 655 MB. Other tests need less at the same time.
    #expect(try Self.residentPages() < before + (300 << 20) / 4096)
    withExtendedLifetime(decoder) {}
  }

  private static func residentPages() throws -> Int {
    let numbers = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8).split(
      separator: " ")
    return try #require(Int(numbers[1]))
  }

  @Test("a decoder process refuses the same files as this process")
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
    "a decoder process gives the same results for randomly changed bytes",
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
    "a randomly changed image of a risky format ends only its own job",
    arguments: [
      "small.jxl", "progressive-lossless.jxl", "animated.jxl", "alpha.heic", "deep.heic",
      "old.ico",
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
    "formats that need isolation are refused without a seccomp filter")
  func withoutFilter() {
    let bare = IsolatedCodec.SandboxLayers(hasFilter: false, landlock: 7)
    let held = IsolatedCodec.SandboxLayers(hasFilter: true, landlock: nil)
    func formats(by layers: IsolatedCodec.SandboxLayers) -> Set<ImageFormat>? {
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
    "a decoder process renders the same variants, even larger than the shared memory")
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
    // Bytes of another image.
    #expect(throws: CodecError.self) {
      try Self.files(Self.codec.render(Fixtures.png, of: image, as: [small]))
    }
  }

  @Test(
    "a decoder process renders images of every format and with color profiles",
    arguments: [
      "wide.png", "grey-gamma.png", "icc.jpg", "exif.webp", "animated.gif", "alpha.avif",
      "wide.jxl",
      "grey-gamma.jxl", "alpha.jxl", "animated.jxl", "wide.heic", "grid.heic", "premultiplied.heic",
      "small.ico", "old.ico",
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

  @Test("a large image may have long steps, which its decoder reports in time")
  func longSteps() throws {
    let bytes = Fixtures.image("flat-lossless.webp")
    // Allows only what the decoder reports.
    let codec = IsolatedCodec { $0.longestStep = .zero }
    let image = try Decoding(bytes, by: codec).result.get()
    #expect(image.width * image.height == 12_000_000)
    let files = try Self.files(codec.render(bytes, of: image, as: [Variant(format: .webp)]))
    #expect(throws: Never.self) { try files[0].get() }
  }

  @Test("a decoder process renders animations", arguments: ["animated.gif", "animated.webp"])
  func animations(name: String) throws {
    let bytes = Fixtures.image(name)
    let image = try Decoding(bytes, by: StreamingCodec()).result.get()
    var variant = Variant(format: .webp)
    (variant.width, variant.isAnimated) = (20, true)
    let here = try Self.files(StreamingRenderer().render(bytes, of: image, as: [variant]))
    let there = try Self.files(Self.codec.render(bytes, of: image, as: [variant]))
    #expect(try here.map { try $0.get() } == there.map { try $0.get() })
  }

  @Test(
    "a decoder process makes previews",
    arguments: [("photo-progressive.jpg", 11_000), ("thumbnail.heic", 900)])
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

  @Test("an image in many pieces and larger than the shared memory is decoded as it arrives")
  func large() throws {
    let bytes = PNGFixture(width: 900, height: 700).bytes
    #expect(bytes.count > 1 << 20)
    for pieces in [Int.max, 70_000] {
      let there = Decoding(bytes, by: Self.codec, pieces: pieces)
      #expect(there == Decoding(bytes, by: StreamingCodec(), pieces: pieces))
      #expect(there.error == nil)
    }
  }

  @Test("many images have a process each, and some processes are kept for the next")
  func many() async {
    let codec = IsolatedCodec { $0.maxIdle = 3 }
    let expected = Decoding(Fixtures.smallPNG, by: StreamingCodec())
    await withTaskGroup { group in
      for _ in 0..<40 {
        group.addTask { Decoding(Fixtures.smallPNG, by: codec, pieces: 100) }
      }
      for await there in group { #expect(there == expected) }
    }
  }

  @Test("a photo with a thumbnail is decoded in one step after its header")
  func behindTheHeader() throws {
    func steps() throws -> [DecodeStep] {
      let decoder = Self.codec.makeDecoder(limits: DecodeLimits(), variants: [Self.thumbnail])
      decoder.append(Fixtures.jpeg)
      decoder.finishInput()
      var steps: [DecodeStep] = []
      while true {
        steps.append(try decoder.step())
        if case .finished = steps.last { return steps }
      }
    }
    guard case .header(let header) = try steps().first else {
      Issue.record("the first step was no header")
      return
    }
    #expect(header.decodingMemory > SharedMemory.smallDecode)
    // On a busy machine, more steps may be needed.
    let shortest = try (0..<20).map { _ in try steps().count }.min()
    #expect(shortest == 2)
  }

  @Test("in a crowd, an arriving image waits for more of its bytes and is still decoded")
  func crowd() throws {
    let codec = IsolatedCodec { $0.busyThreshold = 2 }
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
      decoder.finishInput()
      while true {
        guard case .finished(let image) = try decoder.step() else { continue }
        #expect(image.format == .png)
        break
      }
    }
  }

  @Test("an abandoned image leaves nothing to the next image")
  func abandoned() {
    let codec = IsolatedCodec { $0.maxIdle = 1 }
    for _ in 0..<3 {
      let decoder = codec.makeDecoder(limits: DecodeLimits())
      decoder.append(Array(Fixtures.jpeg.prefix(2_000)))
      _ = try? decoder.step()
    }
    #expect(Decoding(Fixtures.smallPNG, by: codec).error == nil)
  }

  @Test("a process is replaced after its number of images")
  func replaced() {
    let codec = IsolatedCodec { $0.imagesPerProcess = 2 }
    for _ in 0..<7 { #expect(Decoding(Fixtures.smallJPEG, by: codec).error == nil) }
  }

  @Test("a missing program means that there is no decoder, which is retryable")
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
