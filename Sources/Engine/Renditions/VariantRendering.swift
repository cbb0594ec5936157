internal import Jobs

/// Renders variants of one image within the memory shared by all decodes. Runs on the decode threads.
struct VariantRendering: Sendable {
  let renderer: any ImageRenderer
  let memory: DecodeMemory
  let opener: ImageOpener
  /// Memory limit of one decode, in bytes.
  let maxMemory: Int

  /// Whether these renditions can be made by one decode.
  func fits(_ renditions: [Rendition]) -> Bool { need(of: renditions) <= maxMemory }

  /// Renders and encodes renditions of one source. The results are in the order of `renditions`.
  /// - Parameters:
  ///   - content: the image's bytes, if they are already in memory.
  ///   - stage: moves encoded bytes out of the memory reserved for rendering, which is released after the last one.
  /// - Throws: `.imageGone`, `.unrenderable`, `.store`, or `.abandoned` if the task was cancelled: if no rendition
  ///   could be made.
  func bytes(
    of renditions: [Rendition], content: [UInt8]? = nil,
    _ stage: ([UInt8]) async throws(StoreError) -> NewRendition
  ) async throws(JobsError) -> [Result<NewRendition, JobsError>] {
    guard let source = renditions.first?.source else { return [] }
    let needed = need(of: renditions)
    guard needed <= maxMemory else {
      throw .unrenderable(.tooMuchMemory(bytes: needed, limit: maxMemory))
    }
    guard let share = await memory.reserve(needed) else { throw .abandoned }
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
    case .placeholder(let picture): renderer.memory(for: variants, from: picture.description)
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
    case .placeholder(let picture):
      renderer.render(picture.bytes, of: picture.description, as: variants)
    }
  }

  /// Returns the verified bytes of the image. Corrupt bytes would give a wrong variant, which would then be stored.
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

  /// Yields between steps of about 10 ms, so that other work on the lane gets its turn.
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
