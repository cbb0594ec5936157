internal import App
internal import ArgumentParser
internal import Foundation
internal import Synchronization

/// `imagefetch migrate`
struct Migrate: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Updates the tables of the job store, or moves a folder into other stores.",
    discussion: """
      serve also updates the tables when it starts; this command does only that. With --check nothing is \
      changed, and the exit status is 4 if an update is needed. With --from sqlite the jobs and images of \
      a folder are copied into the empty stores in storage.jobs and storage.images. An interrupted move continues \
      when it is started again. In the folder, the tables are updated and running jobs are queued again.
      """)

  /// The store to move jobs from.
  enum Origin: String, ExpressibleByArgument {
    case sqlite
  }

  @Option(help: ArgumentHelp("The configuration file.", valueName: "file"))
  var config: String?

  @Flag(help: "Only check whether an update is needed.")
  var check = false

  @Option(help: ArgumentHelp("The store of the folder's jobs: sqlite.", valueName: "store"))
  var from: Origin?

  @Option(help: ArgumentHelp("The folder to move; by default storage.path.", valueName: "path"))
  var folder: String?

  func validate() throws {
    if folder != nil, from == nil { throw ValidationError("--folder needs --from sqlite.") }
    if check, from != nil {
      throw ValidationError("--check cannot be used with --from.")
    }
  }

  func run() async throws {
    let configuration = try loadConfiguration(from: config)
    let log = LogFormat.start(configuration.log)
    do throws(StartError) {
      if from != nil {
        let totals = try await Migration.move(
          from: folder ?? configuration.storage.path, to: configuration, log: log,
          report: Self.reporting(every: .seconds(2)))
        printSummary(totals, configuration)
        return
      }
      let versions = try Migration.versions(configuration)
      if versions.found == versions.latest {
        print("The tables are up to date: version \(versions.latest).")
      } else if check {
        print(
          "The tables have version \(versions.found). This release needs version \(versions.latest)."
        )
      } else {
        try await Migration.run(configuration)
        print("The tables were updated from version \(versions.found) to \(versions.latest).")
      }
      guard check, versions.found < versions.latest else { return }
    } catch {
      throw error.commandError
    }
    throw CommandEnded(status: .migrationPending)
  }

  private static func reporting(every interval: Duration) -> @Sendable (MoveTotals) -> Void {
    let last = LastReport()
    return { totals in
      let isDue = last.moment.withLock { moment in
        guard moment + interval <= .now else { return false }
        moment = .now
        return true
      }
      if isDue { EntryPoint.printError(totals.progress) }
    }
  }

  private final class LastReport: Sendable {
    let moment = Mutex(ContinuousClock.now)
  }

  private func printSummary(_ totals: MoveTotals, _ configuration: Configuration) {
    for line in totals.summary { print(line) }
    let moved = folder ?? configuration.storage.path
    let file = config.map { " --config \($0)" } ?? ""
    print(
      """
      Next: imagefetch serve\(file). Keep \(moved) until you have checked the jobs and their images. \
      Do not start a service with this folder alone meanwhile: it would run the same jobs.
      """)
    if configuration.storage.images == nil, folder == nil {
      print(
        "images/ in it stays in use. After the check, jobs.sqlite and all files that begin with its name, except .lock, may be deleted."
      )
    }
  }
}
