internal import Jobs

/// A stored bundle of variants, which replaces the image of jobs with `"original": "drop"`.
struct KeptBundle: Sendable {
  let bundle: VariantBundle
  /// The bytes of a small bundle, which the transaction that ends the jobs stores; nil for a large one.
  var embedded: EmbeddedImage?
}

extension ImageStaging {
  /// Stores the variants of a job in one file, one after the other.
  /// - Parameter holder: returns the ID that reserves the file. Called only for a bundle that is not embedded.
  func keepBundle(
    of rendered: [RenderedVariant], mayEmbed: Bool = true, as holder: () -> JobID, for job: JobID
  ) async throws(JobFailure) -> KeptBundle {
    let count = rendered.reduce(0) { $0 + $1.bytes.bytes.count }
    if mayEmbed, count <= largestEmbedded {
      let content = rendered.flatMap { $0.bytes.bytes.read(at: 0, count: $0.bytes.bytes.count) }
      let digest = ImageDigest(of: content)
      return KeptBundle(
        bundle: VariantBundle(digest: digest, bytes: content.count),
        embedded: EmbeddedImage(digest: digest, content: content))
    }
    let staged = try await stage(for: job)
    for variant in rendered { try copy(variant.bytes.bytes, to: staged) }
    let digest = staged.finish()
    try await publish(staged, digest, bytes: count, as: holder(), for: job)
    return KeptBundle(bundle: VariantBundle(digest: digest, bytes: count))
  }

  private func copy(_ bytes: StoredBytes, to staged: any StagedImage) throws(JobFailure) {
    var offset = 0
    while offset < bytes.count {
      let piece = bytes.read(at: offset, count: 1 << 20)
      guard !piece.isEmpty else { throw .internal }
      do throws(StoreError) { try staged.write(piece) } catch { throw JobFailure(error) }
      offset += piece.count
    }
  }
}
