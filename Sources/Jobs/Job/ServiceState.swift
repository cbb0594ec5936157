/// Whether the service accepts jobs.
package enum ServiceState: Sendable, Equatable {
  /// The service is recovering the jobs of an earlier run, or waits for its store.
  case starting
  /// The service accepts jobs.
  case ready
  /// The service accepts jobs, but currently cannot decode images.
  case stuck
  /// A disk is full: the service refuses new jobs, but still serves stored images.
  case full
  /// The service finishes running jobs and refuses new ones.
  case draining
}
