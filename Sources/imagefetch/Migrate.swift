internal import App
internal import ArgumentParser
internal import Foundation
internal import Synchronization

/// `imagefetch migrate`
struct Migrate: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Brings the job store's tables up to date, or moves a folder into other stores.",
    discussion: """
      A start brings the tables up to date as well; this does it apart from one. With --check nothing is \
      changed, and the exit status is 4 where something is to be done. With --from sqlite the jobs and images \
      of a folder are moved into the stores that storage.jobs and storage.images name; a move that was cut \
      short goes on when it is begun again, and the folder is left as it is.
      """)

  /// Where jobs come from.
  enum Origin: String, ExpressibleByArgument {
    case sqlite
  }

  @Option(help: ArgumentHelp("The configuration.", valueName: "file"))
  var config: String?

  @Flag(help: "Only say whether something is to be done.")
  var check = false

  @Option(help: ArgumentHelp("What the folder's jobs are kept in: sqlite.", valueName: "store"))
  var from: Origin?

  @Option(help: ArgumentHelp("The folder to move; else storage.path.", valueName: "path"))
  var folder: String?

  func validate() throws {
    if folder != nil, from == nil { throw ValidationError("--folder needs --from sqlite.") }
    if check, from != nil {
      throw ValidationError("--check is of the tables: it goes without --from.")
    }
  }

  func run() async throws {
    let configuration = try loaded(from: config)
    let log = LogFormat.start(configuration.log)
    do throws(StartError) {
      if from != nil {
        let totals = try await Migration.move(
          from: folder ?? configuration.storage.path, to: configuration, log: log,
          report: Self.reporting(every: .seconds(2)))
        tell(totals, configuration)
        return
      }
      let versions = try Migration.versions(configuration)
      if versions.found == versions.latest {
        print("The tables are up to date: version \(versions.latest).")
      } else if check {
        print("The tables are of version \(versions.found), this release's of \(versions.latest).")
      } else {
        try await Migration.run(configuration)
        print("The tables were of version \(versions.found), and are of \(versions.latest) now.")
      }
      guard check, versions.found < versions.latest else { return }
    } catch {
      throw error.told
    }
    throw Ended(status: .migrationPending)
  }

  private static func reporting(every interval: Duration) -> @Sendable (MoveTotals) -> Void {
    let last = LastReport()
    return { totals in
      let isDue = last.moment.withLock { moment in
        guard moment + interval <= .now else { return false }
        moment = .now
        return true
      }
      if isDue { EntryPoint.tell(totals.progress) }
    }
  }

  private final class LastReport: Sendable {
    let moment = Mutex(ContinuousClock.now)
  }

  private func tell(_ totals: MoveTotals, _ configuration: Configuration) {
    for line in totals.summary { print(line) }
    let moved = folder ?? configuration.storage.path
    let file = config.map { " --config \($0)" } ?? ""
    print(
      """
      Next: imagefetch serve\(file). \(moved) is as it was; keep it until you have seen the jobs and their images, \
      and start no service with it alone meanwhile: it would work on the same jobs.
      """)
    if configuration.storage.images == nil, folder == nil {
      print(
        "images/ there is in use; jobs.sqlite, and what begins with its name but .lock, may go then."
      )
    }
  }
}
