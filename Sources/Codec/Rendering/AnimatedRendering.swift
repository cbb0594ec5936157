internal import CCodecs
internal import Jobs

/// Makes an animated WebP from an animation. Each step composes one frame on its canvas, scales it like a still image
/// and adds it to the file.
final class AnimatedRendering: Rendering {
  /// Limits for an animation. Each of its frames costs as much as a whole still image.
  private enum Limits {
    static let frames = 1000
    /// Pixels of all frames together, as stored and as written. They bound the work to about 10 s.
    static let pixelsRead = 400_000_000
    static let pixelsWritten = 64_000_000
    /// The longest time that a frame is shown: the largest value in GIF, where some files use it to stop the
    /// animation. Longer durations are reduced to this, so that the sum of all frames fits libwebp's 31-bit
    /// timestamps.
    static let millisecondsPerFrame = 655_350
  }

  private enum State {
    case waiting
    case rendering(FrameSource, AnimationSink)
    case finished([UInt8])
    case failed(CodecError)
  }

  private let bytes: [UInt8]
  private let image: ImageDescription
  private let variant: Variant
  private let size: VariantGeometry.Size
  private var state = State.waiting

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variant: Variant) {
    (self.bytes, self.image, self.variant) = (bytes, image, variant)
    size = VariantGeometry(of: variant, from: image).size
  }

  /// Whether this class makes the variant. If not, the variant shows only the first frame.
  static func canRender(_ variant: Variant, of image: ImageDescription) -> Bool {
    variant.isAnimated && variant.format == .webp && image.frames > 1
      && FrameSource.formats.contains(image.format)
  }

  /// An upper bound of the memory one rendering needs, in bytes, not counting the image's own bytes.
  static func memory(for variant: Variant, from image: ImageDescription) -> Int {
    let size = VariantGeometry(of: variant, from: image).size
    let (width, height) = (UInt32(clamping: size.width), UInt32(clamping: size.height))
    var still = variant
    still.isAnimated = false
    // A longer file than this is refused (`AnimationSink.mostBytes`).
    return frames_memory(UInt32(clamping: image.width), UInt32(clamping: image.height))
      + webp_animation_memory(width, height) + 3 * 4 * size.width * size.height
      + VariantPipeline.memory(for: still, from: image)
      + 2 * AnimationSink.mostBytes(frames: image.frames, size: size)
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    do throws(CodecError) {
      return try advance().map { [.success($0)] }
    } catch {
      state = .failed(error)
      throw error
    }
  }

  private func advance() throws(CodecError) -> [UInt8]? {
    switch state {
    case .waiting:
      try checkLimits()
      let source = try FrameSource(bytes, image)
      state = .rendering(source, try AnimationSink(size, variant, loops: source.loops))
      return nil
    case .rendering(let source, let sink):
      switch try source.next() {
      case .notYet: return nil
      case .frame(let pixels, let duration):
        try encodeFrame(pixels, for: duration, from: source, in: sink)
        return nil
      case .end:
        let file = try sink.finish()
        state = .finished(file)
        return file
      }
    case .finished(let file): return file
    case .failed(let error): throw error
    }
  }

  private func checkLimits() throws(CodecError) {
    let stored = max(1, image.width * image.height)
    let frames = min(
      Limits.frames, Limits.pixelsRead / stored,
      Limits.pixelsWritten / max(1, size.width * size.height))
    guard image.frames <= frames else { throw .tooManyFrames(limit: frames) }
    let writing = OutputFormat.webp.writing
    guard max(size.width, size.height) <= writing.maxSide else {
      throw .dimensionTooLarge(width: size.width, height: size.height, limit: writing.maxSide)
    }
  }

  private func encodeFrame(
    _ pixels: UnsafePointer<UInt8>, for duration: Int, from source: FrameSource,
    in sink: AnimationSink
  ) throws(CodecError) {
    let pipeline = try VariantPipeline(source.layout, image, variant, writing: .raw)
    let batch = StreamingRendering.batch
    try withUnsafeTemporaryAllocation(of: UnsafePointer<UInt8>?.self, capacity: batch) {
      (rows) throws(CodecError) in
      for top in stride(from: 0, to: image.height, by: batch) {
        let count = min(batch, image.height - top)
        for row in 0..<count { rows[row] = pixels + (top + row) * 4 * image.width }
        try pipeline.add([SampleRows(UnsafePointer(rows.baseAddress!), count: count)])
      }
    }
    while true {
      guard let picture = try pipeline.finish() else { continue }
      return try sink.add(picture, for: min(duration, Limits.millisecondsPerFrame))
    }
  }
}

/// Makes all still variants in one decode, then each animated variant in a decode of its own.
final class MixedRendering: Rendering {
  private var parts: [(places: [Int], rendering: any Rendering)] = []
  private var results: [Result<[UInt8], CodecError>]

  init(_ bytes: [UInt8], _ image: ImageDescription, _ variants: [Variant], _ animated: [Bool]) {
    results = variants.map { _ in .failure(.cutShort) }
    let still = variants.indices.filter { !animated[$0] }
    if !still.isEmpty {
      parts.append((still, StreamingRenderer.still(bytes, image, still.map { variants[$0] })))
    }
    for place in variants.indices where animated[place] {
      parts.append(([place], AnimatedRendering(bytes, image, variants[place])))
    }
  }

  func step() throws(CodecError) -> [Result<[UInt8], CodecError>]? {
    guard let part = parts.first else { return results }
    do throws(CodecError) {
      guard let made = try part.rendering.step() else { return nil }
      for (place, result) in zip(part.places, made) { results[place] = result }
    } catch {
      // The other variants can still be made.
      if results.count == part.places.count { throw error }
      for place in part.places { results[place] = .failure(error) }
    }
    parts.removeFirst()
    return parts.isEmpty ? results : nil
  }
}
