internal import App
internal import ArgumentParser

/// `imagefetch check`
struct Check: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Checks a configuration and prints the effective values.",
    discussion: """
      Reads the file, the environment and the defaults as serve does; without --config, the \
      environment and the defaults. Each mistake is one line on standard error, and the exit status \
      is 1. Otherwise the effective configuration is printed, with secrets hidden. Settings that \
      have no effect are reported on standard error.
      """)

  @Option(help: ArgumentHelp("The configuration file.", valueName: "file"))
  var config: String?

  func run() throws {
    let configuration = try loadConfiguration(from: config)
    do throws(StartError) {
      for warning in try Service.check(configuration) { EntryPoint.printError(warning) }
    } catch {
      throw error.commandError
    }
    print(configuration.effective(), terminator: "")
  }
}
