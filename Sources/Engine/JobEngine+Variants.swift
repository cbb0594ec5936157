package import Jobs

/// Variants of stored images.
extension JobEngine {
  /// The formats that variants can be written in. Empty if variants are not offered.
  package var outputFormats: Set<OutputFormat> {
    renditions.variants?.rendering.renderer.formats ?? []
  }

  /// Returns what a variant of an image will be, without rendering it; nil if variants are not offered.
  package func rendition(of image: StoredImage, as variant: Variant) -> Rendition? {
    renditions.variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }

  /// Returns the bytes of a rendition of the job's image, from the cache or rendered now.
  ///
  /// Equal requests at the same time share one rendering. It stops when the tasks of all of them are cancelled.
  /// Renditions for a `no-store` job are not cached. If the original was dropped, only the job's own variants are
  /// available.
  /// - Throws: `.renderingsFull`, `.imageGone`, `.unrenderable`, `.abandoned`, `.draining`, `.store`.
  package func open(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = renditions.variants else {
      throw .unrenderable(.unsupportedFormat(name: nil))
    }
    var rendition = rendition
    if let image = job.image {
      let wanted = job.submission.variants
      let place = wanted.firstIndex { variants.rendition(of: image, as: $0).id == rendition.id }
      if let bundle = image.bundle {
        guard let place, place < image.variants.count,
          let whole = try await openImage(bundle.digest)
        else { throw .imageGone }
        return RenderedBytes(
          whole.part(image.range(of: place)), entityTag: image.variants[place].entityTag)
      }
      // The job reports the entity tag of the bytes that were rendered together with its other variants. So the scale
      // has to be the same.
      if let place {
        rendition = variants.rendition(of: image, as: variants.scaled(wanted, of: image)[place])
      }
    }
    return try await variants.bytes(
      of: configuration.cache.isShared ? rendition : rendition.unshared(for: job.owner),
      for: job.owner, at: job.priority, keeping: job.submission.cacheMode != .noStore)
  }
}

/// Placeholders for images that are not available.
extension JobEngine {
  /// Returns the operator's placeholder image, or the built-in one.
  package func placeholderImage(for placeholder: Placeholder) -> PlaceholderImage {
    configuration.placeholders[placeholder] ?? .builtIn(for: placeholder)
  }

  /// Returns the bytes of a placeholder's rendition. Placeholders have the lowest priority.
  /// - Throws: `.renderingsFull`, `.unrenderable`, `.abandoned`, `.draining`.
  package func openPlaceholder(
    _ rendition: Rendition, for job: Job
  ) async throws(JobsError) -> RenderedBytes {
    guard let variants = renditions.variants else {
      throw .unrenderable(.unsupportedFormat(name: nil))
    }
    return try await variants.placeholder(rendition, for: job.owner, at: .veryLow)
  }

  /// Returns what a variant of a placeholder will be, without rendering it; nil if variants are not offered.
  package func rendition(of image: PlaceholderImage, as variant: Variant) -> Rendition? {
    renditions.variants.map { Rendition(of: image, as: variant, by: $0.rendering.renderer) }
  }
}
