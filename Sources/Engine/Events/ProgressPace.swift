/// How often the progress of a job is delivered: less often the more events that makes.
///
/// One progress event for each stream and each of its loading jobs, ten times a second, would be two million events a
/// second with 4,500 streams and 48 jobs.
enum ProgressPace {
  /// Progress events a second, for all streams together.
  static let eventsPerSecond = 10_000.0
  static let shortest = Duration.milliseconds(100)
  static let longest = Duration.seconds(5)

  /// The time between two deliveries of one job's progress.
  /// - Parameter events: the events that one delivery of all loading jobs' progress makes: streams times jobs.
  static func interval(events: Int) -> Duration {
    min(longest, max(shortest, .seconds(Double(events) / eventsPerSecond)))
  }
}
