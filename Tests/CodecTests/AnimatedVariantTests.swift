import CCodecs
import Codec
import Jobs
import TestSupport
import Testing

@Suite("An animated variant")
struct AnimatedVariantTests {
  private static func frames(of file: [UInt8]) -> [ShownFrames.Frame]? { ShownFrames(file)?.frames }

  private static func animated(
    _ width: Int? = nil, _ height: Int? = nil, fit: Variant.Fit = .contain
  ) -> Variant {
    var variant = Variant(.webp, width, height, fit: fit)
    variant.isAnimated = true
    return variant
  }

  @Test("an animated variant applies a GIF's disposal methods as browsers do")
  func disposal() throws {
    // A canvas of 4 × 1. All frames after the first are one pixel.
    var gif = GIFFixture(width: 4, height: 1)
    func frame(at left: Int, _ index: Int, _ control: [UInt8]) -> GIFFixture.Frame {
      var frame = GIFFixture.Frame(left: left, width: 1, height: 1)
      frame.codes = GIFFixture.codes([index])
      frame.control = control
      return frame
    }
    let none = [UInt8](repeating: 0, count: 4)
    // The colors of the fixture's table.
    let table = [0, 1, 2, 3].map { index in
      Array(gif.bytes[13 + 3 * index..<16 + 3 * index]) + [255]
    }
    let shown: [(UInt8, [[UInt8]])] = [
      (0, [table[0], table[1], table[2], table[0]]), (1, [table[0], table[1], table[2], table[0]]),
      (2, [table[0], none, table[2], table[0]]), (3, [table[0], table[0], table[2], table[0]]),
    ]
    for (disposal, last) in shown {
      gif.frames = [
        GIFFixture.Frame(width: 4, height: 1),
        frame(at: 1, 1, GIFFixture.control(disposal: disposal, hundredths: 7)),
        frame(at: 2, 2, GIFFixture.control(disposal: 0, hundredths: 1)),
        frame(at: 0, 3, GIFFixture.control(disposal: 0, clear: 3)),
      ]
      let frames = try #require(Self.frames(of: gif.bytes))
      #expect(frames.map(\.milliseconds) == [100, 70, 100, 100])
      #expect(frames[1].pixels == Array((table[0] + table[1] + table[0] + table[0])))
      #expect(frames[2].pixels == Array(last.joined()), "\(disposal)")
      #expect(frames[3].pixels == frames[2].pixels)
    }
  }

  @Test(
    "an animated variant has all frames, scaled like a still variant",
    arguments: ["animated.gif", "animated.webp", "animated-lossless.webp"])
  func whole(name: String) throws {
    let file = Fixtures.image(name)
    let source = try #require(Self.frames(of: file))
    let image = try Decoding(file).result.get()
    for variant in [
      Self.animated(), Self.animated(20), Self.animated(10, 30, fit: .cover),
      Self.animated(9, 9, fit: .fill),
    ] {
      let made = try Rendered(file, as: variant, described: image).result.get()
      let description = try #require(Decoding(made).description)
      let size = StreamingRenderer().size(of: variant, from: image)
      #expect((description.width, description.height) == size)
      #expect(description.format == .webp)
      // Equal frames are merged into one with the sum of their durations.
      #expect(2...image.frames ~= description.frames)
      let frames = try #require(Self.frames(of: made))
      #expect(
        frames.map(\.milliseconds).reduce(0, +) == source.map(\.milliseconds).reduce(0, +))
    }
  }

  @Test("an animated variant shows the pixels of each frame")
  func pictures() throws {
    let file = Fixtures.image("animated.gif")
    let image = try Decoding(file).result.get()
    let made = try Rendered(file, as: Self.animated(), described: image).result.get()
    let (theirs, ours) = try (#require(Self.frames(of: file)), #require(Self.frames(of: made)))
    for (one, other) in zip(theirs, ours) where theirs.count == ours.count {
      let (one, other) = [one, other].map {
        ShownPixels(width: image.width, height: image.height, orientation: 1, pixels: $0.pixels)
      }.pair
      #expect(one.likeness(to: other) > 20)
    }
    #expect(theirs.first?.pixels != theirs.last?.pixels)
  }

  @Test(
    "an animated variant plays as often as its source",
    arguments: [(nil, 1), (0, 0), (1, 2), (5, 6), (65_535, 65_535)] as [(Int?, Int)])
  func loops(again: Int?, times: Int) throws {
    var gif = GIFFixture(width: 4, height: 1)
    var second = GIFFixture.Frame(width: 4, height: 1)
    second.codes = GIFFixture.codes([1, 2, 1, 2])
    gif.frames.append(second)
    let block: [UInt8]? = again.map { again in
      [0x21, 0xFF, 11] + Array("NETSCAPE2.0".utf8)
        + [3, 1, UInt8(again & 255), UInt8(again >> 8), 0]
    }
    let control = GIFFixture.control(disposal: 0, hundredths: 7)
    for extensions in [(block ?? []) + control, control + (block ?? [])] {
      gif.before = extensions
      let made = try Rendered(gif.bytes, as: Self.animated()).result.get()
      let animation = try #require(WebPFixture(made).chunks.first { $0.tag == "ANIM" })
      // After a color of four bytes.
      #expect(Int(animation.content[4]) | Int(animation.content[5]) << 8 == times)
      #expect(try #require(Self.frames(of: made)).map(\.milliseconds) == [70, 100])
    }
  }

  @Test("an animated variant of a still image or in another format is a still variant")
  func still() throws {
    for name in ["small.gif", "small.webp", "photo.jpg", "animated.avif"] {
      let file = Fixtures.image(name)
      let plain = try Rendered(file, as: Variant(.webp, 12)).result.get()
      #expect(try Rendered(file, as: Self.animated(12)).result.get() == plain)
    }
    var png = Self.animated(12)
    png.format = .png
    let file = Fixtures.image("animated.gif")
    #expect(
      try Rendered(file, as: png).result.get() == Rendered(file, as: Variant(.png, 12)).result.get()
    )
  }

  @Test("animated and still variants can be requested together")
  func mixed() throws {
    let file = Fixtures.image("animated.webp")
    let image = try Decoding(file).result.get()
    let variants = [Variant(.png, 12), Self.animated(20), Variant(.jpeg, 9)]
    let rendering = StreamingRenderer().render(file, of: image, as: variants)
    var results: [Result<[UInt8], CodecError>]?
    while results == nil { results = try rendering.step() }
    let made = try #require(results).map { try? $0.get() }
    #expect(made[1] == Rendered(file, as: variants[1]).file)
    // These two come from one decode, which scales differently than a decode for one alone.
    let widths = made.map { $0.flatMap { Decoding($0).description?.width } }
    #expect(widths == [12, 20, 9])
  }

  @Test("an animated variant is refused if it exceeds the limits of frames or pixels")
  func limits() throws {
    var gif = GIFFixture(width: 100, height: 100)
    gif.frames[0].codes = nil
    var image = ImageDescription(format: .gif, width: 100, height: 100)
    image.frames = 1001
    func error(_ variant: Variant) -> CodecError? {
      guard case .failure(let error) = Rendered(gif.bytes, as: variant, described: image).result
      else { return nil }
      return error
    }
    #expect(error(Self.animated()) == .tooManyFrames(limit: 1000))
    image.frames = 20
    #expect(error(Self.animated(4000, 4000, fit: .fill)) == .tooManyFrames(limit: 4))
    (image.width, image.height, image.frames) = (10_000, 10_000, 5)
    #expect(error(Self.animated(10)) == .tooManyFrames(limit: 4))
  }

  @Test("an animated variant shows no frame longer than GIF's longest duration")
  func longFrames() throws {
    var gif = GIFFixture(width: 4, height: 1)
    gif.frames = (0..<30).map { index in
      var frame = GIFFixture.Frame(width: 4, height: 1)
      frame.codes = GIFFixture.codes(index % 2 == 0 ? [0, 1, 2, 3] : [3, 2, 1, 0])
      frame.control = GIFFixture.control(disposal: 0, hundredths: 65_535)
      return frame
    }
    let made = try Rendered(gif.bytes, as: Self.animated()).result.get()
    let frames = try #require(Self.frames(of: made))
    #expect(frames.map(\.milliseconds) == Array(repeating: 655_350, count: 30))
    // WebP allows longer durations: 24 bits, after four 24-bit numbers.
    var webp = WebPFixture(made)
    let frame = try #require(webp.chunks.firstIndex { $0.tag == "ANMF" })
    webp.chunks[frame].content.replaceSubrange(12..<15, with: [0xFF, 0xFF, 0xFF])
    let long = try Rendered(webp.bytes, as: Self.animated()).result.get()
    #expect(Self.frames(of: long)?.map(\.milliseconds) == Array(repeating: 655_350, count: 30))
  }

  @Test("an animated variant with an unreasonably long file is refused with its length")
  func long() {
    var random = SeededRandom(3)
    var gif = GIFFixture(width: 100, height: 100)
    gif.frames = (0..<2).map { _ in
      var frame = GIFFixture.Frame(width: 100, height: 100)
      frame.codes = GIFFixture.codes((0..<10_000).map { _ in .random(in: 0..<4, using: &random) })
      return frame
    }
    var variant = Self.animated()
    variant.quality = 100
    guard
      case .failure(.tooMuchMemory(let bytes, 28_192)) = Rendered(gif.bytes, as: variant).result
    else {
      Issue.record("noise with more than a byte per pixel")
      return
    }
    #expect(28_193...100_000 ~= bytes)
  }

  @Test(
    "an animated variant of damaged bytes ends with a result or an error",
    arguments: ["animated.gif", "animated.webp"])
  func harmed(name: String) throws {
    let file = Fixtures.image(name)
    let image = try Decoding(file).result.get()
    for count in stride(from: 0, to: file.count - 8, by: 61) {
      let cut = Rendered(Array(file.prefix(count)), as: Self.animated(12), described: image)
      #expect(cut.file == nil, "\(count)")
    }
    var random = SeededRandom(11)
    for _ in 0..<80 {
      let mutant = random.mutant(of: file)
      let rendered = Rendered(mutant, as: Self.animated(12), described: image)
      if let file = rendered.file { #expect(Decoding(file).description?.width == 12) }
    }
  }
}

extension [ShownPixels] {
  fileprivate var pair: (ShownPixels, ShownPixels) { (self[0], self[1]) }
}
