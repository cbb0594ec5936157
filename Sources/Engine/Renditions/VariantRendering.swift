internal import Jobs

/// Renders one variant within the memory that all decodes share. Runs on the decode threads.
struct VariantRendering: Sendable {
  let renderer: any ImageRenderer
  let memory: DecodeMemory
  let opener: ImageOpener
  /// Of what one may hold at once, in bytes.
  let maxMemory: Int

  /// The encoded picture.
  /// - Parameter content: the image's bytes, where they are at hand.
  /// - Throws: `.imageGone`, `.unrenderable`, `.abandoned` when the task was cancelled, `.store`.
  func bytes(
    of rendition: Rendition, content: [UInt8]? = nil
  ) async throws(JobsError) -> [UInt8] {
    let variant = rendition.variant
    let needed =
      switch rendition.source {
      case .image(let image): renderer.memory(for: variant, from: image.description) + image.bytes
      case .picture(let picture): renderer.memory(for: variant, from: picture.description)
      case .drawing: renderer.memory(forDrawing: variant)
      }
    guard needed <= maxMemory else {
      throw .unrenderable(.tooMuchMemory(bytes: needed, limit: maxMemory))
    }
    guard let share = await memory.share(needed) else { throw .abandoned }
    defer { withExtendedLifetime(share) {} }
    return try await finish(try await begin(rendition.source, variant, content))
  }

  private func begin(
    _ source: Rendition.Source, _ variant: Variant, _ content: [UInt8]?
  ) async throws(JobsError) -> any Rendering {
    switch source {
    case .image(let image):
      if let content {
        renderer.render(content, of: image.description, as: variant)
      } else {
        try await renderer.render(bytes(of: image), of: image.description, as: variant)
      }
    case .picture(let picture):
      renderer.render(picture.bytes, of: picture.description, as: variant)
    case .drawing(let placeholder): renderer.draw(placeholder, as: variant)
    }
  }

  /// The image's bytes, unharmed: others would give a picture that looks wrong, and be kept.
  private func bytes(of image: StoredImage) async throws(JobsError) -> [UInt8] {
    let stored: StoredBytes?
    do throws(StoreError) {
      stored = try await opener.open(image.digest)
    } catch {
      throw .store(error)
    }
    guard let stored else { throw .imageGone }
    if case .memory(let bytes) = stored { return bytes }
    let bytes = stored.read(at: 0, count: stored.count)
    guard bytes.count == image.bytes else { throw .imageGone }
    return bytes
  }

  /// Lets others have a turn between the slices, each of some 10 ms.
  private func finish(_ rendering: any Rendering) async throws(JobsError) -> [UInt8] {
    while !Task.isCancelled {
      do throws(CodecError) {
        if let bytes = try rendering.step() { return bytes }
      } catch {
        throw .unrenderable(error)
      }
      await Task.yield()
    }
    throw .abandoned
  }
}
