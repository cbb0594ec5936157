internal import App
internal import ArgumentParser

/// `imagefetch version`
struct Version: ParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Prints the versions of imagefetch and of all linked libraries.")

  func run() {
    for (name, version) in Versions.all { print(name, version) }
  }
}
