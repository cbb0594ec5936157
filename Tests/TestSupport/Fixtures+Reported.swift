package import Jobs

extension Fixtures {
  /// An image like those in public bug reports about other decoders: see Tests/Fixtures/reported.
  package struct Reported: Sendable {
    package var name: String
    package var description: ImageDescription

    init(
      _ name: String, _ format: ImageFormat, _ width: Int, _ height: Int, frames: Int = 1,
      isProgressive: Bool = false, hasAlpha: Bool = false
    ) {
      self.name = name
      description = ImageDescription(format: format, width: width, height: height)
      description.frames = frames
      description.isProgressive = isProgressive
      description.hasAlpha = hasAlpha
    }

    package var bytes: [UInt8] { Fixtures.image("../reported/" + name) }

    /// The same image in a form that Pillow decodes.
    package var sound: [UInt8] {
      // Pillow needs the end of a progressive JPEG.
      name == "prog-noeoi.jpg" ? bytes + [0xFF, 0xD9] : bytes
    }
  }

  /// The files that are images, with what browsers show of them.
  package static let reported = [
    // No trailer.
    Reported("notrailer.gif", .gif, 160, 120, isProgressive: true),
    Reported("anim-notrailer.gif", .gif, 160, 120, frames: 3),
    // A zero byte instead of the trailer, before it, and after the first of three frames.
    Reported("end-nul.gif", .gif, 40, 30),
    Reported("end-nul-tr.gif", .gif, 40, 30),
    Reported("zero-between-frames.gif", .gif, 160, 120),
    // A screen of 0 x 0, and one that is smaller than the first frame.
    Reported("screen0.gif", .gif, 40, 30),
    Reported("screen0-anim.gif", .gif, 40, 30, frames: 2),
    Reported("screen-small.gif", .gif, 40, 30),
    // The second frame has no pixels.
    Reported("frame0size.gif", .gif, 40, 30, frames: 2),
    // The last frame is shown for 655.35 s.
    Reported("delay-655s.gif", .gif, 40, 30, frames: 2),
    // No IEND, or an IEND without its checksum.
    Reported("noiend.png", .png, 320, 240),
    Reported("inter-noiend.png", .png, 320, 240, isProgressive: true, hasAlpha: true),
    Reported("iend-cut.png", .png, 320, 240),
    // Animations without frames, and with fewer frames than declared.
    Reported("apng-actl0.png", .png, 320, 240),
    Reported("apng-fewer.png", .png, 320, 240),
    // No EOI, bytes before restart markers, and chroma at a third of the width or height.
    Reported("prog-noeoi.jpg", .jpeg, 320, 240, isProgressive: true),
    Reported("junk-before-rst.jpg", .jpeg, 320, 240),
    Reported("s3x1.jpg", .jpeg, 320, 240),
    Reported("ramp1x3.jpg", .jpeg, 96, 16),
  ]
}
