//! `deploy/`: the files are valid to their tools, and the commands in them, started as they stand on hosts of their own, make a cluster
//! that counts. Only paths are others: folders of the test.

use crate::network::{Host, Network};
use crate::process::{Process, command, until};
use crate::python::{environment, must, need_debian};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const REGIONS: [&str; 3] = ["usa-0", "europe-0", "asia-0"];
const COUNTER: &str = "search/queries";
/// Where processes find what they are given, and write.
const FOLDERS: [&str; 3] = ["/etc/tidemark", "/var/lib", "/run/credentials"];
/// The worst that `systemd-analyze security` may say of a unit, in tenths, of 100.
const EXPOSURE_MAX: &str = "15";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A validator, or another program of the Python environment.
fn tool(name: &str) -> Command {
    Command::new(environment("deploy", &root("tests/deploy/requirements.txt")).join(name))
}

/// The documents of a YAML file.
fn yaml(path: &str) -> Vec<Value> {
    const SCRIPT: &str = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    serde_json::from_str(&must(tool("python").args(["-c", SCRIPT]).arg(root(path)))).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().unwrap_or_else(|| panic!("a list of texts is expected: {value}"));
    items.iter().map(|item| item.as_str().unwrap_or_else(|| panic!("{value}")).to_owned()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("a text is expected: {value}"))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

// ---- processes as the files describe them ----------------------------------------------------------------------------------

/// One process: its host, its command, and the places of its files.
struct Unit {
    host: String,
    command: Vec<String>,
    /// Files that are handed to it, by their path.
    files: Vec<(String, PathBuf)>,
    /// Folders that outlive it, by their path.
    folders: Vec<(String, PathBuf)>,
    /// Says whether it is ready.
    probe: Vec<String>,
}

/// A folder of the test in the place of a host's root directory, with what the process finds there.
struct Laid {
    dir: PathBuf,
}

fn make_dir(path: &Path) {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).unwrap();
}

impl Laid {
    fn new(dir: PathBuf, unit: &Unit) -> Laid {
        let laid = Laid { dir };
        for (path, folder) in &unit.folders {
            make_dir(folder);
            make_dir(laid.inside(path).parent().unwrap());
            symlink(folder, laid.inside(path)).unwrap();
        }
        for (path, file) in &unit.files {
            make_dir(laid.inside(path).parent().unwrap());
            laid.write(path, &std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())));
        }
        laid
    }

    fn inside(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    /// As containers and services get them: read-only, and none of a secret for others.
    fn write(&self, path: &str, content: &[u8]) {
        let content = match path.ends_with(".toml") {
            true => self.with_paths(std::str::from_utf8(content).unwrap()).into_bytes(),
            false => content.to_vec(),
        };
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o400).open(self.inside(path)).unwrap();
        std::io::Write::write_all(&mut file, &content).unwrap();
    }

    /// A text with paths of the test in the place of the host's.
    fn with_paths(&self, text: &str) -> String {
        FOLDERS.iter().fold(text.to_owned(), |text, folder| text.replace(folder, self.inside(folder).to_str().unwrap()))
    }

    fn command(&self, arguments: &[String]) -> Vec<String> {
        let program = command(&[]).get_program().to_str().unwrap().to_owned();
        arguments.iter().map(|argument| self.with_paths(argument).replace("/usr/bin/tidemark", &program)).collect()
    }
}

/// Hosts with processes.
struct Deployment {
    dir: tempfile::TempDir,
    network: Network,
}

struct Running {
    unit: Unit,
    laid: Laid,
    process: Process,
}

impl Deployment {
    fn new(dir: tempfile::TempDir, hosts: &[Host]) -> Deployment {
        Deployment { dir, network: Network::new(hosts) }
    }

    /// The folder of a volume.
    fn volume(&self, name: &str) -> PathBuf {
        self.dir.path().join("volumes").join(name)
    }

    /// Runs a command to its end.
    fn run(&self, unit: &Unit) -> String {
        let laid = Laid::new(self.dir.path().join(&unit.host), unit);
        must(&mut self.network.on(&unit.host, &laid.command(&unit.command)))
    }

    fn start(&self, unit: Unit) -> Running {
        let name = format!("{}-{}", unit.host, unit.command[1]);
        let laid = Laid::new(self.dir.path().join(&name), &unit);
        let command = self.network.on(&unit.host, &laid.command(&unit.command));
        let process = Process::start(command, self.dir.path().join(format!("{name}.log")));
        Running { unit, laid, process }
    }

    /// Starts all of them, and waits until each says that it is ready.
    async fn start_all(&self, units: Vec<Unit>) -> Vec<Running> {
        let mut running: Vec<Running> = units.into_iter().map(|unit| self.start(unit)).collect();
        for one in &mut running {
            one.process.until_said(" serves dc=").await;
        }
        for one in &running {
            let what = format!("{} is ready", one.unit.host);
            until(&what, async || {
                let mut probe = self.network.on(&one.unit.host, &one.laid.command(&one.unit.probe));
                probe.output().unwrap().status.success().then_some(())
            })
            .await;
        }
        running
    }

    /// The output of the program on a host.
    fn tidemark(&self, one: &Running, arguments: &[&str]) -> Option<String> {
        let arguments = ["tidemark"].iter().chain(arguments).map(|&argument| argument.to_owned()).collect::<Vec<_>>();
        let output = self.network.on(&one.unit.host, &one.laid.command(&arguments)).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Adds at the first of some aggregators, and waits until all of them show it.
    async fn count(&self, aggregators: &[(&Running, &str)]) {
        let (first, token) = aggregators[0];
        until("an increment", async || self.tidemark(first, &["add", COUNTER, "3", "--token-file", token])).await;
        for &(one, token) in aggregators {
            let expected = format!("{COUNTER} 3\n");
            until(&format!("the increment at {}", one.unit.host), async || {
                self.tidemark(one, &["get", COUNTER, "--token-file", token]).filter(|said| *said == expected)
            })
            .await;
        }
    }
}

fn host(name: &str, aliases: &[String]) -> Host {
    Host { name: name.to_owned(), aliases: aliases.to_vec() }
}

/// A CA, and credentials of a layout's processes below `credentials`.
fn issue(dir: &Path, layout: &str) {
    let ca = dir.join("ca");
    let out = dir.join("credentials");
    let [ca, out] = [&ca, &out].map(|path| path.to_str().unwrap());
    must(&mut command(&["certs", "init", "--cluster", "demo", "--out", ca]));
    must(&mut command(&["certs", "issue", "--ca", ca, "--cluster", layout, "--out", out]));
}

// ---- the container image ---------------------------------------------------------------------------------------------------

const CONTAINERFILE: &str = "deploy/container/Containerfile";

/// The instructions of the Containerfile, each on one line, by stage.
fn stages() -> Vec<Vec<String>> {
    let text = read(CONTAINERFILE).replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut stages: Vec<Vec<String>> = Vec::new();
    for line in lines {
        if line.starts_with("FROM ") {
            stages.push(Vec::new());
        }
        stages.last_mut().unwrap().push(line.to_owned());
    }
    stages
}

/// The JSON of an instruction of the last stage.
fn instruction(name: &str) -> Vec<String> {
    let last = stages().pop().unwrap();
    let line = last.iter().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name}")).clone();
    texts(&serde_json::from_str(line.split_once(name).unwrap().1).unwrap())
}

#[test]
fn containerfile_pleases_hadolint_and_runs_without_root() {
    must(tool("hadolint").arg(root(CONTAINERFILE)));
    let last = stages().pop().unwrap();
    assert!(
        last.contains(&"USER 65532:65532".to_owned()) && last.contains(&"VOLUME /var/lib/tidemark".to_owned()),
        "{last:?}"
    );
    assert!(last.contains(&"COPY --from=build /src/target/release/tidemark /usr/bin/tidemark".to_owned()), "{last:?}");
    assert_eq!(instruction("ENTRYPOINT "), ["tidemark"]);
    assert!(last.iter().all(|line| !line.starts_with("RUN ") && !line.starts_with("ADD ")), "{last:?}");
}

/// The build stage copies a workspace, with all files that sources include.
#[test]
fn containerfile_copies_all_that_a_build_reads() {
    let dir = tempfile::tempdir().unwrap();
    let first = stages().remove(0);
    let mut copied = Vec::new();
    for line in first.iter().filter_map(|line| line.strip_prefix("COPY ")) {
        let paths: Vec<&str> = line.split_whitespace().collect();
        let (target, sources) = paths.split_last().unwrap();
        for source in sources {
            let target = if *target == "./" { *source } else { *target };
            assert_eq!(*source, target, "it lies where it lay");
            make_dir(dir.path().join(target).parent().unwrap());
            symlink(root(source), dir.path().join(target)).unwrap();
            copied.push(root(source));
        }
    }
    let manifest = dir.path().join("Cargo.toml");
    let metadata = ["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1", "--manifest-path"];
    must(Command::new(env!("CARGO")).args(metadata).arg(&manifest));
    let ignored = read("deploy/container/Containerfile.dockerignore");
    for path in &copied {
        let entry = path.strip_prefix(root("")).unwrap().to_str().unwrap();
        assert!(ignored.lines().any(|line| line == format!("!{entry}")), "{entry} does not get to the builder");
    }
    let mut found = 0;
    for file in must(Command::new("git").arg("-C").arg(root("")).args(["ls-files", "*.rs"])).lines() {
        let is_built = copied.iter().any(|path| root(file).starts_with(path))
            && file.contains("src/")
            && !file.ends_with("tests.rs");
        for include in read(file).split("include_").skip(1).filter(|_| is_built) {
            let Some(path) = include.strip_prefix("str!(\"").or(include.strip_prefix("bytes!(\"")) else { continue };
            let path = root(file).parent().unwrap().join(path.split('"').next().unwrap()).canonicalize().unwrap();
            assert!(copied.iter().any(|copied| path.starts_with(copied)), "{file} includes {}", path.display());
            found += 1;
        }
    }
    assert!(found > 20, "{found} files are included");
}

// ---- compose ---------------------------------------------------------------------------------------------------------------

const COMPOSE: &str = "deploy/compose/compose.yaml";

#[test]
fn compose_file_is_one_by_its_schema() {
    must(tool("check-jsonschema").args(["--builtin-schema", "vendor.compose-spec"]).arg(root(COMPOSE)));
    let compose = yaml(COMPOSE).remove(0);
    for (name, service) in compose["services"].as_object().unwrap() {
        assert_eq!(
            (&service["read_only"], &service["cap_drop"]),
            (&true.into(), &serde_json::json!(["ALL"])),
            "{name}"
        );
    }
    let health: Vec<String> = instruction("CMD ").into_iter().collect();
    let of_service = texts(&compose["services"]["usa-0-node"]["healthcheck"]["test"]);
    assert!(
        of_service[0] == "CMD" && of_service[1..] == health,
        "{health:?} of the image, {of_service:?} of the service"
    );
}

fn compose_unit(deployment: &Deployment, compose: &Value, name: &str) -> Unit {
    let service = &compose["services"][name];
    let entrypoint = instruction("ENTRYPOINT ");
    let config = |config: &Value| {
        let file = text(&compose["configs"][text(&config["source"])]["file"]);
        (text(&config["target"]).to_owned(), root("deploy/compose").join(file))
    };
    let volume = |volume: &Value| {
        assert_eq!(volume["type"], "volume");
        let source = text(&volume["source"]);
        let sub = volume["volume"]["subpath"].as_str().unwrap_or_default();
        assert!(compose["volumes"].get(source).is_some(), "{source} is no volume");
        (text(&volume["target"]).to_owned(), deployment.volume(source).join(sub))
    };
    let probe = texts(&service["healthcheck"].get("test").cloned().unwrap_or_else(|| serde_json::json!(["CMD"])));
    Unit {
        host: name.to_owned(),
        command: [entrypoint, texts(&service["command"])].concat(),
        files: items(&service["configs"]).iter().map(config).collect(),
        folders: items(&service["volumes"]).iter().map(volume).collect(),
        probe: probe[1..].to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compose_services_are_a_cluster_that_counts() {
    let compose = yaml(COMPOSE).remove(0);
    let services = compose["services"].as_object().unwrap();
    let hosts: Vec<Host> = services.keys().map(|name| host(name, &[])).collect();
    let deployment = Deployment::new(tempfile::tempdir().unwrap(), &hosts);
    for name in ["ca", "credentials"] {
        assert_eq!(services[name]["profiles"], serde_json::json!(["setup"]));
        deployment.run(&compose_unit(&deployment, &compose, name));
    }
    let others = services.iter().filter(|(_, service)| service.get("profiles").is_none());
    let units = others.map(|(name, _)| compose_unit(&deployment, &compose, name)).collect();
    let running = deployment.start_all(units).await;
    assert_eq!(running.len(), 2 * REGIONS.len());
    let aggregators =
        REGIONS.map(|region| running.iter().find(|one| one.unit.host == format!("{region}-aggregator")).unwrap());
    deployment.count(&aggregators.map(|one| (one, "/var/lib/tidemark/token"))).await;
}

// ---- systemd ---------------------------------------------------------------------------------------------------------------

const ROLES: [&str; 2] = ["node", "aggregator"];

fn unit_file(role: &str) -> String {
    read(&format!("deploy/systemd/tidemark-{role}.service"))
}

/// The values of a key of a unit file.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn units_please_systemd_and_leave_little_exposed() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        need_debian("systemd");
    }
    let dir = tempfile::tempdir().unwrap();
    let program = command(&[]).get_program().to_str().unwrap().to_owned();
    for role in ROLES {
        let path = dir.path().join(format!("tidemark-{role}.service"));
        std::fs::write(&path, unit_file(role).replace("/usr/bin/tidemark", &program)).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.is_empty(), "{role}: {said}");
        let threshold = format!("--threshold={EXPOSURE_MAX}");
        must(Command::new("systemd-analyze").args(["security", "--no-pager", "--offline=true", &threshold]).arg(&path));
    }
}

/// The samples of configuration as README.md says to change them: the data centre, and where others reach its processes.
fn machine_config(dir: &Path, region: &str) {
    let folder = dir.join("config").join(region);
    make_dir(&folder);
    let cluster = (0..REGIONS.len()).fold(read("deploy/cluster.toml"), |cluster, at| {
        let address = |port: usize| (format!("127.0.0.1:{port}"), format!("{}.example:{port}", REGIONS[at]));
        [7_200 + at, 7_300 + at].into_iter().map(address).fold(cluster, |text, (from, to)| text.replace(&from, &to))
    });
    std::fs::write(folder.join("cluster.toml"), cluster).unwrap();
    for role in ROLES {
        let sample = read(&format!("deploy/{role}.toml"));
        assert!(sample.contains("dc = \"usa-0\""));
        std::fs::write(
            folder.join(format!("{role}.toml")),
            sample.replace("dc = \"usa-0\"", &format!("dc = {region:?}")),
        )
        .unwrap();
    }
}

fn systemd_unit(dir: &Path, region: &str, role: &str) -> Unit {
    let unit = unit_file(role);
    let one = |key: &str| *values(&unit, key).first().unwrap_or_else(|| panic!("no {key}"));
    let credentials = format!("/run/credentials/tidemark-{role}.service");
    let issued = dir.join("credentials").join(region).join(if role == "node" { "node-0" } else { role });
    let mut files = Vec::new();
    for name in ["cluster.toml", &format!("{role}.toml")] {
        files.push((format!("/etc/tidemark/{name}"), dir.join("config").join(region).join(name)));
    }
    for (id, path) in values(&unit, "LoadCredential").iter().map(|value| value.split_once(':').unwrap()) {
        // Where README.md says to put what was issued.
        let file = path.strip_prefix(&format!("/etc/tidemark/credentials/{role}/")).unwrap();
        files.push((format!("{credentials}/{id}"), issued.join(file)));
    }
    let command = one("ExecStart").replace("%d", &credentials).replace("%S", "/var/lib");
    let state = one("StateDirectory");
    let port = if role == "node" { 7172 } else { 7171 };
    let probe = format!("tidemark status --ready --server http://127.0.0.1:{port}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Unit {
        host: region.to_owned(),
        command: words(&command),
        files,
        folders: vec![(format!("/var/lib/{state}"), dir.join("state").join(region).join(state))],
        probe: words(&probe),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_of_three_machines_are_a_cluster_that_counts() {
    let dir = tempfile::tempdir().unwrap();
    REGIONS.iter().for_each(|region| machine_config(dir.path(), region));
    issue(dir.path(), dir.path().join("config/usa-0/cluster.toml").to_str().unwrap());
    let pairs = REGIONS.iter().flat_map(|region| ROLES.map(|role| (*region, role)));
    let units = pairs.map(|(region, role)| systemd_unit(dir.path(), region, role)).collect();
    let hosts = REGIONS.map(|region| host(region, &[format!("{region}.example")]));
    let deployment = Deployment::new(dir, &hosts);
    let running = deployment.start_all(units).await;
    let aggregators = running.iter().filter(|one| one.unit.command[1] == "aggregator");
    deployment.count(&aggregators.map(|one| (one, "/var/lib/tidemark-aggregator/token")).collect::<Vec<_>>()).await;
}

// ---- Kubernetes ------------------------------------------------------------------------------------------------------------

const KUBERNETES: &str = "deploy/kubernetes";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn manifest(region: &str) -> String {
    format!("{KUBERNETES}/{region}.yaml")
}

/// By the tool's newest schema, and by that of the oldest version that has all that is used.
#[test]
fn manifests_are_valid_and_those_of_regions_differ_in_names_only() {
    let files = REGIONS.map(manifest).into_iter().chain([format!("{KUBERNETES}/common.yaml")]);
    let files: Vec<PathBuf> = files.map(|path| root(&path)).collect();
    for version in [&[][..], &["--kubernetes-version", "1.28.0"]] {
        must(tool("kubernetes-validate").args(["--strict", "--quiet"]).args(version).args(&files));
    }
    let regions: Vec<String> = REGIONS.iter().map(|region| read(&manifest(region))).collect();
    let place = |text: &str| text.split("kubernetes.io/region: ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    for (region, text) in REGIONS.iter().zip(&regions) {
        let renamed = text.replace(region, REGIONS[0]).replace(&place(text), &place(&regions[0]));
        assert_eq!(renamed, regions[0], "{region}");
    }
    let namespace = &yaml(&format!("{KUBERNETES}/common.yaml"))[0];
    let kustomization = &yaml(&format!("{KUBERNETES}/kustomization.yaml"))[0];
    assert_eq!(namespace["metadata"]["name"], kustomization["namespace"]);
    let resources = texts(&kustomization["resources"]);
    assert_eq!(resources, ["common.yaml", "usa-0.yaml", "europe-0.yaml", "asia-0.yaml"]);
}

#[test]
fn pods_have_no_rights_that_they_do_not_need() {
    for pod in
        REGIONS.iter().flat_map(|region| yaml(&manifest(region))).filter(|object| object["kind"] == "StatefulSet")
    {
        let spec = &pod["spec"]["template"]["spec"];
        let name = &pod["metadata"]["name"];
        assert_eq!(
            (&spec["automountServiceAccountToken"], &spec["securityContext"]["runAsNonRoot"]),
            (&false.into(), &true.into()),
            "{name}"
        );
        let container = &spec["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(
            (&context["readOnlyRootFilesystem"], &context["allowPrivilegeEscalation"]),
            (&true.into(), &false.into()),
            "{name}"
        );
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(container[probe]["httpGet"]["path"].is_string(), "{name} has no {probe}");
        }
        assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
    }
}

/// The output of the kustomization's generators: files by the name of the object and the key in it.
fn generated(dir: &Path) -> BTreeMap<(String, String), PathBuf> {
    let kustomization = yaml(&format!("{KUBERNETES}/kustomization.yaml")).remove(0);
    let mut files = BTreeMap::new();
    for (kind, folder) in [("configMapGenerator", root(KUBERNETES)), ("secretGenerator", dir.to_owned())] {
        for object in items(&kustomization[kind]) {
            for file in texts(&object["files"]) {
                let (key, path) = file.split_once('=').unwrap_or((&file, &file));
                let before = files.insert((text(&object["name"]).to_owned(), key.to_owned()), folder.join(path));
                assert!(before.is_none(), "{key} twice");
            }
        }
    }
    files
}

/// A pod of a stateful set: `$(POD_INDEX)` is its number.
fn pod(set: &Value, index: u64, volumes: &Path, files: &BTreeMap<(String, String), PathBuf>) -> Unit {
    let spec = &set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    let variable = &container["env"][0];
    assert_eq!((&variable["name"], items(&container["env"]).len()), (&"POD_INDEX".into(), 1));
    assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], "metadata.labels['apps.kubernetes.io/pod-index']");
    let expand = |text: &str| text.replace("$(POD_INDEX)", &index.to_string());
    let host = format!("{}-{index}", text(&set["metadata"]["name"]));
    let mut own = Vec::new();
    let mut folders = Vec::new();
    for mount in items(&container["volumeMounts"]) {
        let name = &mount["name"];
        let path = text(&mount["mountPath"]).to_owned();
        let Some(volume) = items(&spec["volumes"]).iter().find(|volume| volume["name"] == *name) else {
            assert_eq!(set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"], *name);
            folders.push((path, volumes.join(&host)));
            continue;
        };
        let object = volume["configMap"]["name"].as_str().or(volume["secret"]["secretName"].as_str()).unwrap();
        match mount["subPathExpr"].as_str().map(expand) {
            Some(key) => own.push((
                path,
                files.get(&(object.to_owned(), key.clone())).unwrap_or_else(|| panic!("no {key}")).clone(),
            )),
            None => own.extend(
                files
                    .iter()
                    .filter(|((of, _), _)| of == object)
                    .map(|((_, key), file)| (format!("{path}/{key}"), file.clone())),
            ),
        }
    }
    let ports = items(&container["ports"]);
    let probe = &container["readinessProbe"]["httpGet"];
    let port = ports.iter().find(|port| port["name"] == probe["port"]).unwrap();
    let url = format!("http://{host}:{}{}", port["containerPort"], text(&probe["path"]));
    let ask = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)";
    let arguments = texts(&container["args"]).iter().map(|argument| expand(argument)).collect();
    Unit {
        host,
        command: [instruction("ENTRYPOINT "), arguments].concat(),
        files: own,
        folders,
        probe: ["python3", "-c", ask, &url].map(str::to_owned).to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_three_regions_are_a_cluster_that_counts() {
    let dir = tempfile::tempdir().unwrap();
    issue(dir.path(), root(KUBERNETES).join("cluster.toml").to_str().unwrap());
    std::fs::write(dir.path().join("credentials/token"), TOKEN).unwrap();
    let files = generated(dir.path());
    let volumes = dir.path().join("volumes");
    let objects: Vec<Value> = REGIONS.iter().flat_map(|region| yaml(&manifest(region))).collect();
    let namespace = yaml(&format!("{KUBERNETES}/kustomization.yaml"))[0]["namespace"].as_str().unwrap().to_owned();
    let mut hosts = Vec::new();
    let mut units = Vec::new();
    for set in objects.iter().filter(|object| object["kind"] == "StatefulSet") {
        let service = text(&set["spec"]["serviceName"]);
        let headless =
            objects.iter().find(|object| object["kind"] == "Service" && object["metadata"]["name"] == service).unwrap();
        // A pod has a name before it is ready, and it is only ready once others have found it.
        assert_eq!(
            (&headless["spec"]["clusterIP"], &headless["spec"]["publishNotReadyAddresses"]),
            (&"None".into(), &true.into())
        );
        assert_eq!(headless["spec"]["selector"], set["spec"]["template"]["metadata"]["labels"]);
        for index in 0..set["spec"]["replicas"].as_u64().unwrap() {
            let unit = pod(set, index, &volumes, &files);
            hosts.push(host(&unit.host, &[format!("{}.{service}.{namespace}.svc", unit.host)]));
            units.push(unit);
        }
    }
    assert_eq!(units.len(), REGIONS.len() * (3 + 2));
    let deployment = Deployment::new(dir, &hosts);
    let running = deployment.start_all(units).await;
    let aggregators = running.iter().filter(|one| one.unit.command[1] == "aggregator");
    deployment.count(&aggregators.map(|one| (one, "/etc/tidemark/token/token")).collect::<Vec<_>>()).await;
}
