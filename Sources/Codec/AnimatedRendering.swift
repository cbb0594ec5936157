internal import CCodecs
internal import Jobs

/// Makes an animated WebP of an animation: each frame as it is shown, scaled as a still picture is, a frame a step.
final class AnimatedRendering: Rendering {
  /// What an animation may come to: each of its frames costs as much as a picture.
  private enum Most {
    static let frames = 1000
    /// Of all frames as they are stored, and as they come out: some 10 s at the most.
    static let pixelsRead = 400_000_000
    static let pixelsWritten = 64_000_000
    /// How long a frame is shown: the longest that a GIF can say, which some use to stop an animation. A longer one is
    /// shown for this long, so that all frames together stay within the 31 bits of libwebp's timestamps.
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

  /// Whether a variant of this image is made here: otherwise it shows the first frame.
  static func makes(_ variant: Variant, of image: ImageDescription) -> Bool {
    variant.isAnimated && variant.format == .webp && image.frames > 1
      && FrameSource.formats.contains(image.format)
  }

  /// An upper bound of what one holds beside the image's bytes, in bytes.
  static func memory(for variant: Variant, from image: ImageDescription) -> Int {
    let size = VariantGeometry(of: variant, from: image).size
    let (width, height) = (UInt32(clamping: size.width), UInt32(clamping: size.height))
    var still = variant
    still.isAnimated = false
    // The file is no larger than its frames would be one by one, nor than any that is worth having.
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
        try show(pixels, for: duration, from: source, in: sink)
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
      Most.frames, Most.pixelsRead / stored, Most.pixelsWritten / max(1, size.width * size.height))
    guard image.frames <= frames else { throw .tooManyFrames(limit: frames) }
    let writing = OutputFormat.webp.writing
    guard max(size.width, size.height) <= writing.maxSide else {
      throw .dimensionTooLarge(width: size.width, height: size.height, limit: writing.maxSide)
    }
  }

  private func show(
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
        try pipeline.take([SampleRows(UnsafePointer(rows.baseAddress!), count: count)])
      }
    }
    while true {
      guard let picture = try pipeline.finish() else { continue }
      return try sink.add(picture, for: min(duration, Most.millisecondsPerFrame))
    }
  }
}

/// Still variants by one decode, then each animation by one of its own.
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
      // The others may be made all the same.
      if results.count == part.places.count { throw error }
      for place in part.places { results[place] = .failure(error) }
    }
    parts.removeFirst()
    return parts.isEmpty ? results : nil
  }
}
