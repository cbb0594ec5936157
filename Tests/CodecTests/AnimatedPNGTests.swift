import Codec
import Jobs
import TestSupport
import Testing

@Suite("An animated PNG")
struct AnimatedPNGTests {
  /// A frame, as its chunks describe it.
  struct Frame {
    var width: UInt32 = 4, height: UInt32 = 3, x: UInt32 = 0, y: UInt32 = 0
    var dispose: UInt8 = 0, blend: UInt8 = 0
    /// Nil means the correct rows.
    var rows: [UInt8]?
    /// Nil means the correct rows, compressed.
    var stream: [UInt8]?
    /// How many chunks the data is split into.
    var pieces = 1
  }

  /// An animation on a canvas of 4 × 3. Its first frame is the default image or not.
  struct Animation {
    var png = PNGFixture(width: 4, height: 3)
    var frames = [Frame(), Frame(), Frame(width: 2, height: 2, x: 2, y: 1)]
    var showsPicture = true
    var promised: UInt32?

    var bytes: [UInt8] {
      var png = png
      var sequence: UInt32 = 0
      func next() -> [UInt8] {
        defer { sequence += 1 }
        return PNGFixture.big(sequence)
      }
      func control(_ frame: Frame) -> [UInt8] {
        let sides = [frame.width, frame.height, frame.x, frame.y].flatMap(PNGFixture.big)
        return PNGFixture.chunk(
          "fcTL", next() + sides + [0, 1, 0, 10, frame.dispose, frame.blend])
      }
      png.before.append(
        PNGFixture.chunk(
          "acTL", PNGFixture.big(promised ?? UInt32(frames.count)) + [0, 0, 0, 0]))
      for (index, frame) in frames.enumerated() {
        if showsPicture, index == 0 {
          png.before.append(control(frame))
          continue
        }
        png.after.append(control(frame))
        var part = png
        (part.width, part.height) = (frame.width, frame.height)
        let data = frame.stream ?? PNGFixture.zlib(frame.rows ?? part.rows)
        let size = (data.count + frame.pieces - 1) / frame.pieces
        for start in stride(from: 0, to: data.count, by: size) {
          png.after.append(
            PNGFixture.chunk("fdAT", next() + data[start..<min(start + size, data.count)]))
        }
      }
      return png.bytes
    }
  }

  /// A still image with the same canvas.
  private static let still = ImageDescription(format: .png, width: 4, height: 3)

  @Test("an animated PNG reports its frames for all kinds of pixels and numbers of chunks")
  func whole() {
    for kind in PNGFixture.kinds {
      for isInterlaced in [false, true] {
        for showsPicture in [false, true] {
          var animation = Animation()
          animation.png.colourType = kind.colourType
          animation.png.depth = kind.depth
          animation.png.isInterlaced = isInterlaced
          animation.showsPicture = showsPicture
          animation.frames[1].pieces = 5
          for pieces in [1, 9, .max] {
            let decoding = Decoding(animation.bytes, pieces: pieces)
            #expect(decoding.description?.frames == 3, "\(kind) \(decoding.result)")
          }
        }
      }
    }
  }

  @Test("an animated PNG that is cut after its default image is that image")
  func cutShort() throws {
    for whole in [Animation().bytes, Fixtures.image("animated.png")] {
      let data = try #require(whole.firstRange(of: Array("IDAT".utf8)))
      let length = whole[data.lowerBound - 4..<data.lowerBound].reduce(0) { $0 << 8 | Int($1) }
      let dataEnd = data.upperBound + length + 4
      for count in 1..<whole.count {
        let decoding = Decoding(Array(whole.prefix(count)), pieces: count % 2 == 0 ? 5 : .max)
        if count < dataEnd {
          #expect(decoding.error != nil, "\(count): \(decoding.result)")
        } else {
          // The animation is complete without IEND.
          let frames = count < whole.count - 12 ? 1 : 3
          #expect(decoding.description?.frames == frames, "\(count): \(decoding.result)")
        }
      }
    }
  }

  @Test("an animated PNG with one wrong byte in acTL, fcTL or fdAT is its default image")
  func changed() {
    let whole = Animation().bytes
    #expect(Decoding(whole).description != nil)
    for chunk in ["acTL", "fcTL", "fdAT"] {
      var at = 0
      while let range = whole[at...].firstRange(of: Array(chunk.utf8)) {
        let length = whole[range.lowerBound - 4..<range.lowerBound].reduce(0) { $0 << 8 | Int($1) }
        // Includes the content and the checksum.
        for index in range.upperBound..<range.upperBound + length + 4 {
          for bit in [0, 7] {
            var mutant = whole
            mutant[index] ^= 1 << bit
            #expect(
              Decoding(mutant).description == Self.still, "\(chunk) \(index - range.upperBound)")
          }
        }
        at = range.upperBound
      }
    }
  }

  @Test("an animated PNG with too few, too many or misplaced frames is its default image")
  func rules() {
    let wrongs: [(inout Animation) -> Void] = [
      { $0.promised = 2 }, { $0.promised = 4 }, { $0.promised = 0 },
      { $0.frames[1].x = 1 }, { $0.frames[2].y = 2 }, { $0.frames[2].x = .max },
      { $0.frames[2].width = 0 }, { $0.frames[0].width = 2 }, { $0.frames[1].dispose = 3 },
      { $0.frames[1].blend = 2 }, { $0.frames[1].rows = [] },
      { $0.frames[1].rows = [UInt8](repeating: 0, count: 13 * 3 - 1) },
      { $0.frames[1].rows = [UInt8](repeating: 0, count: 13 * 3 + 1) },
      { $0.frames[1].rows = [9] + [UInt8](repeating: 0, count: 13 * 3 - 1) },
    ]
    for (index, wrong) in wrongs.enumerated() {
      var animation = Animation()
      wrong(&animation)
      for pieces in [1, 7, .max] {
        let decoding = Decoding(animation.bytes, pieces: pieces)
        #expect(decoding.description == Self.still, "\(index): \(decoding.result)")
      }
    }
  }

  @Test("an animated PNG with two acTL chunks or without an fcTL is its default image")
  func chunks() {
    var twice = Animation()
    twice.png.before = [PNGFixture.chunk("acTL", PNGFixture.big(3) + [0, 0, 0, 0])]
    #expect(Decoding(twice.bytes).description == Self.still)
    var silent = PNGFixture(width: 4, height: 3)
    silent.before = [PNGFixture.chunk("acTL", PNGFixture.big(2) + [0, 0, 0, 0])]
    #expect(Decoding(silent.bytes).description == Self.still)
  }

  @Test("an animated PNG is refused if its animation and its default image are broken")
  func brokenImage() {
    var animation = Animation()
    animation.promised = 9
    var bytes = animation.bytes
    guard let data = bytes.firstRange(of: Array("IDAT".utf8)) else { return }
    bytes[data.upperBound + 10] ^= 1
    #expect(Decoding(bytes).isBroken)
  }

  @Test("a broken animated PNG has variants of its default image")
  func brokenVariants() throws {
    let whole = Fixtures.image("animated.png")
    let file = Array(whole.prefix(whole.count - 40))
    let image = try Decoding(file).result.get()
    #expect(image.frames == 1)
    let made = try Rendered(file, as: Variant(.png), described: image).result.get()
    #expect(try made == Rendered(whole, as: Variant(.png)).result.get())
  }

  @Test("a PNG with an acTL chunk after its image data is a still image")
  func late() {
    var png = PNGFixture(width: 4, height: 3)
    png.after = [PNGFixture.chunk("acTL", PNGFixture.big(2) + [0, 0, 0, 0])]
    #expect(Decoding(png.bytes).description?.frames == 1)
  }

  @Test("an animated PNG is refused if it exceeds the limits of frames or pixels")
  func limits() {
    var animation = Animation()
    animation.frames = Array(repeating: Frame(), count: 40)
    #expect(Decoding(animation.bytes).description?.frames == 40)
    let few = Decoding(animation.bytes, limits: DecodeLimits(maxFrames: 39))
    #expect(few.error == .tooManyFrames(limit: 39))
    let small = Decoding(animation.bytes, limits: DecodeLimits(maxPixels: 12))
    #expect(small.error == .tooManyFrames(limit: 16))
  }

  @Test("an animated PNG accepted with more frames than the default limit has variants")
  func manyFrames() throws {
    var animation = Animation()
    animation.frames = Array(repeating: Frame(), count: 600)
    let whole = animation.bytes
    let image = try Decoding(whole, limits: DecodeLimits(maxFrames: 2000)).result.get()
    let rendered = try Rendered(whole, as: Variant(.png), described: image).result.get()
    #expect(Decoding(rendered).description?.width == 4)
  }

  @Test("a variant of an animated PNG shows its default image")
  func variants() throws {
    let file = Fixtures.image("animated.png")
    let image = try Decoding(file).result.get()
    #expect(image.frames == 3)
    let rendered = try Rendered(file, as: Variant(.png), described: image).result.get()
    #expect(Decoding(rendered).description?.frames == 1)
  }
}
