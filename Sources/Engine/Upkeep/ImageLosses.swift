internal import Jobs
internal import Logging

/// Sees to it that nothing is promised of an image whose bytes turned out to be gone or harmed.
struct ImageLosses: Sendable {
  let keeper: ImageKeeper
  let cache: ResponseCache
  let snapshots: JobSnapshots
  let views: Views
  let log: Logger

  /// Its jobs lose it, and the cache forgets it and what was made of it: whoever asks again has it fetched anew.
  func note(_ image: ImageDigest) async {
    guard let jobs = await keeper.lose(image) else { return }
    log.warning(
      "an image's bytes are gone or harmed: it is kept no more",
      metadata: ["image": "\(image.hex)", "jobs": "\(jobs.count)"])
    cache.memory.remove(image)
    snapshots.lose(image, of: jobs)
    views.clear()
    await cache.forgetVariants(of: image)
  }
}
