internal import Jobs

/// Renders variants of one picture within the memory that all decodes share. Runs on the decode threads.
struct VariantRendering: Sendable {
  let renderer: any ImageRenderer
  let memory: DecodeMemory
  let opener: ImageOpener
  /// Of what one may hold at once, in bytes.
  let maxMemory: Int

  /// Whether they can be made by one decode.
  func fits(_ renditions: [Rendition]) -> Bool { need(of: renditions) <= maxMemory }

  /// The encoded pictures, in the order of the renditions, which are of one source.
  /// - Parameters:
  ///   - content: the image's bytes, where they are at hand.
  ///   - stage: puts a picture where it may wait. The memory for rendering is reserved until all of them are there.
  /// - Throws: `.imageGone`, `.unrenderable`, `.abandoned` when the task was cancelled, `.store`: where none can be made.
  func bytes(
    of renditions: [Rendition], content: [UInt8]? = nil,
    _ stage: ([UInt8]) async throws(StoreError) -> NewRendition
  ) async throws(JobsError) -> [Result<NewRendition, JobsError>] {
    guard let source = renditions.first?.source else { return [] }
    let needed = need(of: renditions)
    guard needed <= maxMemory else {
      throw .unrenderable(.tooMuchMemory(bytes: needed, limit: maxMemory))
    }
    guard let share = await memory.share(needed) else { throw .abandoned }
    defer { withExtendedLifetime(share) {} }
    var files = try await finish(try await begin(source, renditions.map(\.variant), content))
    var staged: [Result<NewRendition, JobsError>] = []
    while !files.isEmpty {
      switch files.removeFirst() {
      case .failure(let error): staged.append(.failure(.unrenderable(error)))
      case .success(let file):
        do throws(StoreError) { staged.append(.success(try await stage(file))) } catch {
          staged.append(.failure(.store(error)))
        }
      }
    }
    return staged
  }

  private func need(of renditions: [Rendition]) -> Int {
    guard let first = renditions.first else { return 0 }
    let variants = renditions.map(\.variant)
    return switch first.source {
    case .image(let image): renderer.memory(for: variants, from: image.description) + image.bytes
    case .picture(let picture): renderer.memory(for: variants, from: picture.description)
    case .drawing: renderer.memory(forDrawing: first.variant)
    }
  }

  private func begin(
    _ source: Rendition.Source, _ variants: [Variant], _ content: [UInt8]?
  ) async throws(JobsError) -> any Rendering {
    switch source {
    case .image(let image):
      if let content {
        renderer.render(content, of: image.description, as: variants)
      } else {
        try await renderer.render(bytes(of: image), of: image.description, as: variants)
      }
    case .picture(let picture):
      renderer.render(picture.bytes, of: picture.description, as: variants)
    case .drawing(let placeholder): renderer.draw(placeholder, as: variants[0])
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
  private func finish(
    _ rendering: any Rendering
  ) async throws(JobsError) -> [Result<[UInt8], CodecError>] {
    while !Task.isCancelled {
      do throws(CodecError) {
        if let files = try rendering.step() { return files }
      } catch {
        throw .unrenderable(error)
      }
      await rendering.pause()
    }
    throw .abandoned
  }
}
