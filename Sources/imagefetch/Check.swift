internal import App
internal import ArgumentParser

/// `imagefetch check`
struct Check: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Says what is wrong with a configuration, or prints what it comes to.",
    discussion: """
      The environment counts as it does for serve. Every mistake is one line on standard error, \
      and the exit status is 1; otherwise the effective configuration is printed, secrets hidden. \
      What is no mistake, but hardly meant, is told on standard error too.
      """)

  @Option(help: ArgumentHelp("The configuration.", valueName: "file"))
  var config: String

  func run() throws {
    let configuration = try loaded(from: config)
    do throws(StartError) {
      for warning in try Service.examine(configuration) { EntryPoint.tell(warning) }
    } catch {
      throw error.told
    }
    print(configuration.effective(), terminator: "")
  }
}
