internal import App
internal import ArgumentParser

/// `imagefetch version`
struct Version: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Prints our version and every linked library's.")

  func run() {
    for (name, version) in Versions.all { print(name, version) }
  }
}
